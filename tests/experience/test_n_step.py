"""Returns over several steps: by hand, and against a plain list of episodes."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.algorithms.off_policy import bootstrap
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay, memory_needed
from p3s.experience.rows import unpack_transitions
from p3s.types import EnvSpec, ObservationSpec, Transition
from tests.helpers import record, resume, run

SPEC = EnvSpec.flat(1, 1)


def make_replay(num_steps: int, capacity: int = 50, batch_size: int = 40, spec=SPEC) -> Replay:
    return Replay(capacity, spec, batch_size, 0, NoNormalizer(), num_steps)


def step(*rows: tuple[float, float, bool]) -> Transition:
    """One time step: for each copy its observation, reward, and whether it terminated.

    The action is minus the observation, and the next observation is 0.5 more.
    """
    seen = np.array([[row[0]] for row in rows], np.float32)
    rewards = np.array([row[1] for row in rows], np.float32)
    return Transition(
        seen, -seen, rewards, np.array([not row[2] for row in rows], np.float32), seen + 0.5
    )


def returns(replay: Replay, *observations: float) -> list[tuple[list, list, float]]:
    """Rewards, discounts and next observation of the return from each observation on."""
    found = {}
    for update in range(20):
        batch = unpack_transitions(SPEC, replay.take(update, 1, num_pending=0).rows[0])
        for index, seen in enumerate(batch.observation[:, 0].tolist()):
            assert batch.action[index, 0] == -seen
            found[seen] = (
                batch.reward[index].tolist(),
                batch.discount[index].tolist(),
                float(batch.next_observation[index, 0]),
            )
    return [found[seen] for seen in observations]


class TestByHand:
    def test_a_terminated_episode(self):
        """Rewards 1, 2, 3, 4, n = 3; the next episode begins at observation 10."""
        replay = make_replay(3)
        for index, reward in enumerate((1.0, 2.0, 3.0, 4.0)):
            replay.add(step((index, reward, index == 3)), [0], [0] if index == 3 else [])
        replay.add(step((10, 9.0, False)), [0], [])
        assert returns(replay, 0, 1, 2, 3, 10) == [
            ([1, 2, 3], [0, 0, 1], 2.5),
            ([2, 3, 4], [0, 0, 0], 3.5),
            ([3, 4, 0], [0, 0, 0], 3.5),
            ([4, 0, 0], [0, 0, 0], 3.5),
            ([9, 0, 0], [1, 0, 0], 10.5),
        ]

    def test_a_truncated_episode(self):
        """The last step looks ahead from the true final observation, whatever comes next."""
        replay = make_replay(2)
        for index in range(3):
            replay.add(step((index, 1.0, False)), [0], [0] if index == 2 else [])
        replay.add(step((20, 5.0, False)), [0], [])
        assert returns(replay, 1, 2, 20) == [
            ([1, 1], [0, 1], 2.5),
            ([1, 0], [1, 0], 2.5),
            ([5, 0], [1, 0], 20.5),
        ]

    def test_copies_that_do_not_all_step(self):
        """Copy 0 at observations 0, 1, 2, copy 1 at 100, 101, which waits in between."""
        replay = make_replay(3)
        replay.add(step((0, 1.0, False), (100, 10.0, False)), [0, 1], [])
        replay.add(step((1, 2.0, False)), [0], [])
        replay.add(step((2, 3.0, True)), [0], [0])
        replay.add(step((101, 20.0, False)), [1], [])
        assert returns(replay, 0, 1, 100, 101) == [
            ([1, 2, 3], [0, 0, 0], 2.5),
            ([2, 3, 0], [0, 0, 0], 2.5),
            ([10, 20, 0], [0, 1, 0], 101.5),
            ([20, 0, 0], [1, 0, 0], 101.5),
        ]

    def test_the_target(self):
        """gamma = ½ and V = 8: 1 + ½·2 + ¼·4 + ⅛·8 = 4;  1 + ½·2 = 2;  1 + ½·8 = 5."""
        reward = np.array([[1, 2, 4], [1, 2, 0], [1, 0, 0]], np.float32)
        discount = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], np.float32)
        batch = Transition(None, None, reward, discount, None)
        target = bootstrap(batch, 0.5, np.full(3, 8, np.float32))
        assert target.tolist() == [4, 2, 5]

    def test_what_is_cut_does_not_continue(self):
        replay = make_replay(2)
        replay.add(step((0, 1.0, False)), [0], [])
        replay.cut()
        replay.add(step((10, 2.0, False)), [0], [])
        assert returns(replay, 0, 10) == [([1, 0], [1, 0], 0.5), ([2, 0], [1, 0], 10.5)]


class Play:
    """Episodes of several copies that step or wait at random; a replay, and all that was added."""

    def __init__(self, seed: int, num_steps: int, capacity: int, spec: EnvSpec = SPEC) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_copies = int(self.rng.integers(1, 5))
        self.num_steps, self.spec = num_steps, spec
        self.replay = make_replay(num_steps, capacity, spec=spec)
        self.rows: list[dict] = []
        """Every row: its number, its reward, how its episode went on, its place in an episode."""
        self.current = {copy: [] for copy in range(self.num_copies)}

    def step(self) -> None:
        count = int(self.rng.integers(1, self.num_copies + 1))
        active = sorted(self.rng.choice(self.num_copies, count, replace=False).tolist())
        ended, numbers, over = [], [], []
        for copy in active:
            number, fate = len(self.rows), self.rng.choice(["on", "terminated", "truncated"],
                                                           p=[0.8, 0.1, 0.1])  # fmt: skip
            self.rows.append({"number": number, "over": fate == "terminated"})
            self.current[copy].append(number)
            self.rows[-1]["episode"] = self.current[copy]
            numbers.append(number)
            over.append(fate == "terminated")
            if fate != "on":
                ended.append(copy)
                self.current[copy] = []
        ids = np.array(numbers)
        column = (ids[:, None] % 200).astype(self.spec.observation.dtype)
        shape = (len(ids), *self.spec.observation.shape)
        seen = np.broadcast_to(column.reshape(-1, *[1] * (len(shape) - 1)), shape)
        self.replay.add(
            Transition(seen, ids[:, None], ids + 0.5, 1.0 - np.array(over), seen + 1),
            active,
            ended,
        )

    def expected(self, number: int) -> tuple[list[float], list[float], int]:
        episode = self.rows[number]["episode"]
        place = episode.index(number)
        chain = episode[place : place + self.num_steps]
        rewards = [row + 0.5 for row in chain]
        discounts = [0.0] * (len(chain) - 1) + [1.0 - self.rows[chain[-1]]["over"]]
        padding = [0.0] * (self.num_steps - len(chain))
        return rewards + padding, discounts + padding, chain[-1] % 200 + 1

    def check(self, batch: Transition) -> None:
        for index in np.ndindex(batch.reward.shape[:-1]):
            number = int(batch.reward[index][0])
            rewards, discounts, following = self.expected(number)
            assert number >= len(self.rows) - self.replay.ring.capacity
            assert int(np.ravel(batch.observation[index])[0]) == number % 200
            assert batch.action[index][0] == number
            assert batch.reward[index].tolist() == rewards
            assert batch.discount[index].tolist() == discounts
            assert (np.asarray(batch.next_observation[index]) == following).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_steps", [2, 3, 7])
def test_any_episodes_across_the_wrap(seed, num_steps):
    play = Play(seed, num_steps, capacity=[5, 23, 37, 64][seed])
    for update in range(120):
        play.step()
        if update % 7 == 0:
            batches = play.replay.take(update, 2, num_pending=0)
            play.check(unpack_transitions(SPEC, batches.rows))


def test_images():
    spec = EnvSpec(ObservationSpec((5, 4, 3), "uint8"), 1)
    play = Play(1, 3, capacity=30, spec=spec)
    for _ in range(40):
        play.step()
    batch = unpack_transitions(spec, play.replay.take(0, 2, num_pending=0).rows)
    batch = Transition(*(np.asarray(part) for part in batch))
    assert batch.observation.shape == (2, 40, 5, 4, 3)
    assert batch.reward.shape == batch.discount.shape == (2, 40, 3)
    play.check(batch)


def test_taken_early_is_what_is_taken_late():
    """As if the pending rows were there: the same rows, or none if one of those might matter."""
    early, late = 0, 0
    for seed in range(30):
        play = Play(seed, 3, capacity=400)
        for _ in range(150):
            play.step()
        before = len(play.rows)
        # How many rows are pending is known; play on a copy to see.
        again = Play(seed, 3, capacity=400)
        for _ in range(151):
            again.step()
        num_pending = len(again.rows) - before
        found = play.replay.take(seed, 1, num_pending)
        play.step()
        after = play.replay.take(seed, 1, num_pending=0)
        early, late = early + (found is not None), late + (found is None)
        assert found is None or np.array_equal(found.rows, after.rows)
    assert early > 3
    assert late > 3


@pytest.mark.parametrize("added", [10, 90])
def test_resumed_in_the_middle_of_episodes(added):
    """Rows from the ring, the rest from the snapshot: the links go on as if nothing was."""
    whole, killed = Play(2, 4, capacity=50), Play(2, 4, capacity=50)
    for play in (whole, killed):
        for _ in range(added):
            play.step()
    resumed = make_replay(4, 50)
    resumed.ring.rows[:] = killed.replay.ring.rows
    resumed.ring.num_added = killed.replay.ring.num_added
    resumed.resume(killed.replay.snapshot())
    killed.replay = resumed
    for update in range(30):
        for play in (whole, killed):
            play.step()
        ours, theirs = (play.replay.take(update, 1, 0).rows for play in (whole, killed))
        assert np.array_equal(ours, theirs)
        killed.check(unpack_transitions(SPEC, theirs))
    assert whole.replay.snapshot() == killed.replay.snapshot()


def test_one_step_draws_the_same_rows():
    """Several steps begin where one step would be."""
    plays = [Play(0, 1, capacity=40), Play(0, 5, capacity=40)]
    for play in plays:
        for _ in range(60):
            play.step()
    one, several = (
        unpack_transitions(SPEC, play.replay.take(3, 2, num_pending=0).rows) for play in plays
    )
    assert one.reward.shape == (2, 40)
    assert np.array_equal(one.reward, several.reward[..., 0])
    assert np.array_equal(one.observation, several.observation)
    seen = [play.replay.observations(np.random.default_rng(1)) for play in plays]
    assert np.array_equal(*seen)


def test_memory():
    # Two observations, action, reward, discount, `steps_back` of 4 bytes each, and 8 for a link.
    assert memory_needed(10, SPEC, 3) == 10 * (6 * 4 + 8)
    assert memory_needed(10, SPEC) == 10 * 5 * 4


@pytest.mark.parametrize(
    "scheme", ["p3s", *(pytest.param(name, marks=pytest.mark.slow) for name in ("erl", "cem"))]
)
def test_a_killed_run_resumes_to_the_bit(scheme, tmp_path):
    """In `erl` and `cem` copies wait for each other. The replay wraps within the run."""
    fields = {"scheme": scheme, "num_learners": 3, "n_step": 3, "buffer_size": 350}
    run(tmp_path / "whole", **fields)
    run(tmp_path / "killed", until=450, **fields)
    resume(tmp_path / "killed")
    assert record(tmp_path / "whole") == record(tmp_path / "killed")
