"""Copies on a device: the same contract as on the host, in one program."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest

from p3s.envs import Adapter, make_env
from p3s.envs.copies import LocalCopies, join_snapshots, split_snapshot
from p3s.envs.device_copies import DeviceCopies
from p3s.envs.functional import Outcome
from p3s.envs.on_host import OnHost
from p3s.envs.simulation import own_action
from p3s.envs.workers import WorkerCopies, make_copies
from p3s.errors import TrainingStopped
from p3s.types import Transition
from tests.functional_worlds import MASS, STEP_NUMBERS, SWITCH, StepNumber, point_mass, switch

SPEC = make_env(point_mass).env_spec
EVERYBODY = np.arange(3)


def masses(copies: range = range(3), seed: int = 0) -> DeviceCopies:
    made = DeviceCopies(MASS, SPEC, copies, seed)
    made.start()
    return made


def played(copies: DeviceCopies, steps: int = 30, first: int = 0) -> list:
    """What copies gave, with actions that depend on the copy and the step."""
    told, count = [], len(copies.copies)
    for step in range(first, first + steps):
        pushes = np.sin(np.add.outer(np.array(copies.copies), np.array([step])), dtype=np.float32)
        told.append(copies.step(pushes, np.arange(count)))
    return told


class TestEpisodes:
    @pytest.mark.parametrize("ends", STEP_NUMBERS)
    def test_no_transition_crosses_a_reset(self, ends: str):
        env = STEP_NUMBERS[ends]
        spec = make_env(lambda: OnHost(env)).env_spec
        copies = DeviceCopies(env, spec, range(4, 6), 0)
        copies.start()
        told = [copies.step(np.zeros((2, 2), np.float32), np.arange(2)) for _ in range(7)]
        steps = Transition(*map(np.stack, zip(*(each.transitions for each in told), strict=True)))
        for copy in range(2):
            assert steps.observation[:, copy, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
            assert steps.next_observation[:, copy, 0].tolist() == [1, 2, 3, 1, 2, 3, 1]
            last = 0.0 if ends == "terminated" else 1.0
            assert steps.discount[:, copy].tolist() == [1, 1, last, 1, 1, last, 1]
        ended = [tuple(episode) for each in told for episode in each.episodes]
        assert ended == [(4, 6.0, 3), (5, 6.0, 3)] * 2
        assert copies.observations.tolist() == [[1.0], [1.0]]

    def test_copies_that_wait_stay_where_they_are(self):
        copies = masses()
        before = copies.observations
        steps = copies.step(np.ones((3, 1), np.float32), np.array([1]))
        assert len(steps.transitions.reward) == 1
        assert np.array_equal(copies.observations[[0, 2]], before[[0, 2]])
        assert not np.array_equal(copies.observations[1], before[1])
        assert copies.lengths.tolist() == [0, 1, 0]

    def test_a_copy_plays_the_same_in_any_group(self):
        """In starts, noise and the starts of later episodes."""
        together, alone = masses(range(3)), masses(range(2, 3))
        assert np.array_equal(together.observations[2], alone.observations[0])
        for ours, theirs in zip(played(together), played(alone), strict=True):
            np.testing.assert_allclose(
                ours.transitions.next_observation[2], theirs.transitions.next_observation[0],
                rtol=1e-6, atol=1e-7,
            )  # fmt: skip
        assert together.num_episodes.tolist()[2] == alone.num_episodes.tolist()[0] > 1

    def test_starts_differ_between_copies_episodes_and_seeds(self):
        copies, other = masses(), masses(seed=1)
        starts = [copies.observations]
        for step in range(40):
            (steps,) = played(copies, 1, step)
            if steps.episodes:
                starts.append(copies.observations)
        assert len(starts) == 3
        seen = np.concatenate([*starts, other.observations])
        assert len(np.unique(seen, axis=0)) == len(seen)

    def test_as_the_same_environment_on_the_host(self):
        """One episode from the same key."""
        copies, env = masses(range(1)), make_env(point_mass)
        env.reset(seed=0)
        key = jax.random.fold_in(jax.random.fold_in(copies.key, 0), 0)
        env.unwrapped._key = key
        env.unwrapped._state, _ = env.unwrapped._programs.reset(key)
        for each in played(copies, 20):
            ours = env.step(each.transitions.action[0])
            np.testing.assert_allclose(ours[0], each.transitions.next_observation[0], rtol=1e-5)
            assert ours[1] == pytest.approx(float(each.transitions.reward[0]), abs=1e-6)
            assert (not ours[2]) == bool(each.transitions.discount[0])


class TestSnapshots:
    def test_goes_on_to_the_bit(self):
        copies, resumed = masses(), masses(seed=0)
        played(copies, 25)
        held = copies.snapshot()
        assert all(isinstance(value, np.ndarray) for value in held.values())
        resumed.resume(held)
        assert resumed.continued
        for ours, theirs in zip(played(copies, 30, 25), played(resumed, 30, 25), strict=True):
            assert ours.episodes == theirs.episodes
            for one, other in zip(ours.transitions, theirs.transitions, strict=True):
                assert np.array_equal(one, other)

    def test_split_and_joined(self):
        copies = masses()
        played(copies, 25)
        held, parts = copies.snapshot(), [range(2), range(2, 3)]
        split = split_snapshot(held, parts)
        again = join_snapshots(split)
        assert held.keys() == again.keys()
        assert all(np.array_equal(held[name], again[name]) for name in held)
        part = masses(range(2, 3))
        part.resume(split[1])
        assert np.array_equal(part.observations[0], copies.observations[2])

    def test_a_snapshot_of_the_host_begins_new_episodes(self, capsys):
        host = LocalCopies(lambda: make_env(point_mass), 3, 0)
        host.start()
        copies = masses()
        copies.resume(host.snapshot())
        assert not copies.continued
        assert copies.num_episodes.tolist() == [2, 2, 2]
        assert "all episodes begin anew" in capsys.readouterr().err


class TestTrouble:
    @pytest.mark.parametrize(
        ("part", "message"),
        [
            ("observation", "the observation of learner 4's environment is"),
            ("reward", "the reward of learner 4's environment is nan"),
        ],
    )
    def test_a_number_that_is_not_finite(self, part: str, message: str):
        class Breaks(StepNumber):
            def step(self, state, action, key) -> Outcome:
                outcome = super().step(state, action, key)
                broken = jax.numpy.where(state == 1, np.nan, 1.0)
                return outcome._replace(**{part: getattr(outcome, part) * broken})

        env = Breaks()
        copies = DeviceCopies(env, make_env(lambda: OnHost(env)).env_spec, range(4, 6), 0)
        copies.start()
        copies.step(np.zeros((2, 2), np.float32), np.arange(2))
        with pytest.raises(TrainingStopped, match=message):
            copies.step(np.zeros((2, 2), np.float32), np.arange(2))

    def test_an_action_that_is_not_finite(self):
        with pytest.raises(TrainingStopped, match="the action of learner 1 is"):
            masses().step(np.array([[0], [np.nan], [0]], np.float32), EVERYBODY)


class TestChoice:
    def test_functional_environments_live_on_the_device(self):
        made = make_copies(lambda: make_env(point_mass), range(2), 0)
        assert isinstance(made, DeviceCopies)
        made = make_copies(lambda: make_env(point_mass, 20), range(2), 0)
        assert isinstance(made, DeviceCopies)

    def test_wrapped_ones_are_stepped_one_by_one(self, capsys):
        def wrapped() -> Adapter:
            return make_env(lambda: gymnasium.wrappers.TimeLimit(point_mass(), 9))

        assert isinstance(make_copies(wrapped, range(2), 0), LocalCopies)
        assert (
            "point mass are stepped one by one: it is wrapped in TimeL" in capsys.readouterr().err
        )
        stacked = make_copies(lambda: Adapter(point_mass(), 2), range(2), 0)
        assert isinstance(stacked, LocalCopies)
        assert "more than its latest observation" in capsys.readouterr().err

    def test_others_are_as_ever(self, capsys):
        made = make_copies(lambda: make_env("CartPole-v1"), range(2), 0)
        assert isinstance(made, LocalCopies)
        assert len(made.envs) == 2
        assert capsys.readouterr().err == ""

    def test_in_workers_if_asked_for(self):
        made = make_copies(_mass, range(2), 0, num_workers=1)
        assert isinstance(made, WorkerCopies)
        made.close()


def _mass() -> Adapter:
    return make_env(point_mass)


class TestActions:
    def test_as_the_adapter_scales_them(self):
        low, high = np.array([-1, 0], np.float32), np.array([3, 10], np.float32)
        box = gymnasium.spaces.Box(low, high, (2,), np.float32)
        given = np.array([[-1.0, 0.0], [1.0, 2.0]], np.float32)
        assert own_action(box, jax.numpy.asarray(given)).tolist() == [[-1, 5], [3, 10]]
        whole = gymnasium.spaces.Box(0, 4, (1, 2), np.int32)
        seen = own_action(whole, jax.numpy.asarray(given))
        assert (seen.dtype, seen.shape) == (np.int32, (2, 1, 2))
        assert own_action(SWITCH.action_space, np.array([0, 1])).tolist() == [1, 2]

    def test_discrete_ones(self):
        copies = make_copies(lambda: make_env(switch), range(3), 0)
        copies.start()
        for _ in range(10):
            steps = copies.step(copies.observations.argmax(axis=1), EVERYBODY)
            assert steps.transitions.reward.tolist() == [1, 1, 1]
