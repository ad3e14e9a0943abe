"""Credit: bags by hand and against plain lists of episodes, and IRCR's rewards of minibatches."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.errors import TrainingStopped
from p3s.experience.credit import Credit
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay, memory_needed
from p3s.experience.rows import fields
from p3s.types import EnvSpec, ObservationSpec, Transition

SPEC = EnvSpec.flat(1, 1)


def make_replay(
    delay=None, num_steps: int = 1, capacity: int = 50, lag: int = 0, spec: EnvSpec = SPEC
) -> Replay:
    return Replay(
        capacity, spec, 64, 0, NoNormalizer(), num_steps, bags=Credit(capacity, delay, lag)
    )


def step(*rows: tuple[float, float], spec: EnvSpec = SPEC) -> Transition:
    """One time step: of each copy its observation and its reward; nothing terminates."""
    seen = np.array([row[0] for row in rows], spec.observation.dtype)
    seen = np.broadcast_to(seen.reshape(-1, *[1] * len(spec.observation.shape)),
                           (len(rows), *spec.observation.shape))  # fmt: skip
    rewards = np.array([row[1] for row in rows], np.float32)
    return Transition(seen, np.zeros((len(rows), 1)), rewards, np.ones_like(rewards), seen)


def rewards_of(
    replay: Replay, spec: EnvSpec = SPEC, num_pending: int = 0, num_steps: int = 1
) -> dict[float, list[float]]:
    """The reward of each observation that minibatches hold, as a list over steps."""
    found = {}
    for update in range(20):
        taken = replay.take(update, 1, num_pending)
        assert taken is not None
        batch = fields(taken.rows[0], spec, num_steps=num_steps)
        rewards = batch["reward"].reshape(64, -1)
        for seen, reward in zip(batch["observation"], rewards, strict=True):
            number = float(seen.ravel()[0])
            assert found.setdefault(number, reward.tolist()) == reward.tolist()
    return dict(sorted(found.items()))


class TestByHand:
    def test_an_episode_is_paid_evenly_between_the_worst_and_the_best(self):
        """Returns over lengths: 6/2 = 3, 1/1 = 1, 6/3 = 2: scaled 1, 0, ½."""
        replay = make_replay("end")
        episodes = [[(0, 0.0), (1, 6.0)], [(10, 1.0)], [(20, 0.0), (21, 0.0), (22, 6.0)]]
        for episode in episodes:
            for index, row in enumerate(episode):
                replay.add(step(row), [0], [0] if index == len(episode) - 1 else [])
        replay.add(step((30, 0.0)), [0], [])
        assert rewards_of(replay) == {0: [1], 1: [1], 10: [0], 20: [0.5], 21: [0.5], 22: [0.5]}

    def test_a_delay_pays_within_an_episode(self):
        """Every 2 steps and at the end: 4/2, 8/2, 1/1, then the next episode begins: 2/2."""
        replay = make_replay(2)
        paid = [0.0, 4.0, 0.0, 8.0, 1.0, 0.0, 2.0, 0.0]
        for index, reward in enumerate(paid):
            replay.add(step((index, reward)), [0], [0] if index == 4 else [])
        third = float(np.float32(1) / np.float32(3))
        expected = {0: third, 1: third, 2: 1.0, 3: 1.0, 4: 0.0, 5: 0.0, 6: 0.0}
        assert rewards_of(replay) == {seen: [reward] for seen, reward in expected.items()}

    def test_equal_credit_is_no_reward(self):
        replay = make_replay("end")
        for index in range(4):
            replay.add(step((index, 5.0)), [0], [0])
        assert set(map(tuple, rewards_of(replay).values())) == {(0.0,)}

    def test_before_any_episode_is_over_rewards_stay_as_they_are(self):
        replay = make_replay("end")
        replay.add(step((0, 3.0), (100, 4.0)), [0, 1], [])
        replay.add(step((1, 5.0), (101, 6.0)), [0, 1], [])
        assert rewards_of(replay) == {0: [3], 1: [5], 100: [4], 101: [6]}

    def test_the_latest_step_waits(self):
        """What a pending row would complete is not drawn yet, and what it follows is."""
        replay = make_replay("end", lag=1)
        replay.add(step((0, 1.0)), [0], [0])
        replay.add(step((1, 2.0)), [0], [0])
        assert rewards_of(replay) == {0: [0]}
        assert rewards_of(replay, num_pending=1) == {0: [0], 1: [1]}

    def test_several_steps_end_where_the_steps_with_credit_do(self):
        """n = 3, delay 2, one open bag: 0, 1 | 2, 3 | 4; credits 2 and 4."""
        replay = make_replay(2, num_steps=3)
        for index, reward in enumerate([0.0, 4.0, 0.0, 8.0, 0.0]):
            replay.add(step((index, reward)), [0], [])
        found = rewards_of(replay, num_steps=3)
        assert found == {0: [0, 0, 1], 1: [0, 1, 1], 2: [1, 1, 0], 3: [1, 0, 0]}

    @pytest.mark.parametrize("resumed", [False, True])
    @pytest.mark.parametrize("delay", ["end", 2])
    def test_an_episode_that_is_cut_has_no_credit_to_its_end(self, delay, resumed):
        """Copy 0 is within an episode, copy 1 between two; nobody says whose broke off."""
        replay = make_replay(delay)
        replay.add(step((0, 9.0), (100, 4.0)), [0, 1], [1])
        replay.cut()
        replay.add(step((1, 8.0), (101, 2.0)), [0, 1], [])
        if resumed:
            before, replay = replay, make_replay(delay)
            replay.ring.rows[:], replay.ring.num_added = before.ring.rows, before.ring.num_added
            replay.resume(before.snapshot())
        replay.add(step((2, 7.0), (102, 2.0)), [0, 1], [0, 1])
        replay.add(step((3, 1.0)), [0], [0])
        third = float(np.float32(1) / np.float32(3))
        assert rewards_of(replay) == {3: [0], 100: [1], 101: [third], 102: [third]}

    def test_images(self):
        spec = EnvSpec(ObservationSpec((5, 4, 3), "uint8"), 1)
        replay = make_replay("end", spec=spec)
        for index, reward in enumerate([1.0, 2.0, 5.0]):
            replay.add(step((index, reward), spec=spec), [0], [0])
        assert rewards_of(replay, spec) == {0: [0], 1: [0.25], 2: [1]}

    def test_a_replay_without_room_for_an_episode(self):
        replay = make_replay("end", capacity=20)
        for index in range(30):
            replay.add(step((index, 1.0)), [0], [])
        with pytest.raises(TrainingStopped, match=r"no complete episode.*--buffer-size"):
            replay.take(1, 1, num_pending=0)

    def test_the_largest_reward_is_one(self):
        replay = make_replay("end")
        replay.add(step((0, -70.0)), [0], [0])
        assert replay.largest_reward() == 1

    def test_memory(self):
        """Eight bytes of marks, eight of links, sixteen of bags."""
        assert memory_needed(10, SPEC, with_bags=True) == 10 * (5 * 4 + 8 + 8 + 16)


class Play:
    """Episodes of several copies that step or wait at random; and all that was added."""

    def __init__(self, seed: int, delay, capacity: int, num_steps: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_copies, self.delay = int(self.rng.integers(1, 5)), delay
        self.replay = make_replay(delay, num_steps, capacity)
        self.num_rows = 0
        self.current: dict[int, list] = {copy: [] for copy in range(self.num_copies)}
        self.bags: list[list] = []
        """All complete bags in the order of their ends, as (number, reward) of each row."""

    def step(self) -> None:
        count = int(self.rng.integers(1, self.num_copies + 1))
        active = sorted(self.rng.choice(self.num_copies, count, replace=False).tolist())
        rows, ended = [], []
        for copy in active:
            row = (self.num_rows, float(self.rng.integers(-5, 6)))
            rows.append(row)
            self.num_rows += 1
            self.current[copy].append(row)
            over = self.rng.random() < 0.15
            if over:
                ended.append(copy)
            if over or len(self.current[copy]) == self.delay:
                self.bags.append(self.current[copy])
                self.current[copy] = []
        self.replay.add(step(*rows), active, ended)

    def expected(self) -> dict[float, float]:
        """Credit of each row of the bags that the ring holds as a whole."""
        oldest = self.num_rows - self.replay.ring.capacity
        kept = [bag for bag in self.bags if bag[0][0] >= oldest]
        return {
            number: float(np.float32(sum(reward for _, reward in bag) / len(bag)))
            for bag in kept
            for number, _ in bag
        }

    def check(self, update: int) -> None:
        expected = self.expected()
        if not expected:
            return
        taken = self.replay.take(update, 4, num_pending=0)
        assert taken is not None
        batch = fields(taken.rows, SPEC).ravel()
        smallest, largest = min(expected.values()), max(expected.values())
        scale = np.float32(largest) - np.float32(smallest)
        found = zip(batch["observation"][:, 0], batch["reward"], strict=True)
        for number, reward in found:
            ahead = np.float32(expected[number]) - np.float32(smallest)
            assert reward == (ahead / scale if scale else 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("delay", ["end", 4, 1])
def test_any_episodes_across_the_wrap(seed, delay):
    play = Play(seed, delay, capacity=[60, 71, 83, 97, 120, 64][seed])
    for update in range(250):
        play.step()
        play.check(update)
    assert play.num_rows > 2 * play.replay.ring.capacity


def test_all_steps_with_credit_are_drawn_and_no_others():
    play = Play(1, 4, capacity=60)
    for _ in range(200):
        play.step()
    drawn = set()
    for update in range(60):
        taken = play.replay.take(update, 4, num_pending=0)
        assert taken is not None
        drawn |= set(fields(taken.rows, SPEC)["observation"].ravel())
    assert drawn == set(play.expected())


@pytest.mark.parametrize("delay", ["end", 4])
@pytest.mark.parametrize("num_steps", [1, 3])
@pytest.mark.parametrize("added", [15, 120])
def test_resumed_in_the_middle_of_episodes(delay, num_steps, added):
    """Rows from the ring, the rest from the snapshot: the same minibatches from then on."""
    whole, killed = (Play(3, delay, 64, num_steps) for _ in range(2))
    for update in range(added):
        whole.step()
        whole.replay.take(update, 1, 0)
        killed.step()
    resumed = make_replay(delay, num_steps, 64)
    resumed.ring.rows[:] = killed.replay.ring.rows
    resumed.ring.num_added = killed.replay.ring.num_added
    resumed.resume(killed.replay.snapshot())
    killed.replay = resumed
    for update in range(80):
        for play in (whole, killed):
            play.step()
        ours, theirs = (play.replay.take(update, 1, 0) for play in (whole, killed))
        assert ours is not None
        assert theirs is not None
        assert np.array_equal(ours.rows, theirs.rows)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_taken_early_is_what_is_taken_late(num_steps):
    """With the lag of a step, nothing that a pending row does changes a minibatch."""
    rng = np.random.default_rng(0)
    replay = make_replay(3, num_steps, capacity=40, lag=2)
    for number in range(150):
        early = replay.take(number, 2, num_pending=2) if number > 10 else None
        ended = [copy for copy in (0, 1) if rng.random() < 0.2]
        replay.add(step((number, rng.random()), (number + 0.5, rng.random())), [0, 1], ended)
        late = replay.take(number, 2, num_pending=0)
        assert late is not None
        assert early is None or np.array_equal(early.rows, late.rows)
        assert (early is not None) == (number > 10)
