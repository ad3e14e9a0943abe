"""The state of an environment, captured and put back."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import Adapter, make_env
from p3s.envs.copies import LocalCopies, state_name
from p3s.envs.state import uncaptured
from tests.helpers import Counter, Unpicklable


class TestStateCapture:
    @pytest.mark.parametrize(
        "name",
        ["Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5",
         "Pendulum-v1", "CartPole-v1", "Delayed Ant-v1"],
    )  # fmt: skip
    def test_exact(self, name):
        assert uncaptured(lambda: make_env(name), seed=5) is not None

    def test_one_that_cannot_be_captured_is_found_out(self):
        assert uncaptured(lambda: Adapter(Unpicklable()), seed=5) is None

    def test_discrete_actions_that_do_not_start_at_zero(self):
        class FromThree(Counter):
            def __init__(self):
                super().__init__(length=100)
                self.action_space = spaces.Discrete(2, start=3)

            def step(self, action):
                assert self.action_space.contains(action), f"{action} is not an action"
                return super().step(action)

        assert uncaptured(lambda: Adapter(FromThree()), seed=5) is not None


class Late(Counter):
    """Changes what it keeps when an episode is 40 steps old."""

    def __init__(self):
        super().__init__(length=1000)
        self.later = None

    def step(self, action):
        found = super().step(action)
        if self.count == 40:
            self.change()
        return found

    def change(self):
        raise NotImplementedError


class GainsAttribute(Late):
    """Needs an attribute that it has only from then on."""

    def change(self):
        self.previous = 5.0

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self.previous if self.count > 40 else reward, *rest


class BecomesUnpicklable(Late):
    def change(self):
        self.later = (number for number in range(3))


class BecomesUnreadable(Late):
    def change(self):
        self.later = Unreadable()


class Unreadable:
    """Can be pickled, but not read back."""

    def __reduce__(self):
        return int, ("no number",)


def copies_after(make, steps: int) -> LocalCopies:
    copies = LocalCopies(lambda: Adapter(make()), 2, seed=0)
    copies.start()
    play(copies, steps)
    return copies


def play(copies, steps: int) -> list[float]:
    actions = np.zeros((2, 2), np.float32)
    return [float(copies.step(actions, np.arange(2)).transitions.reward[0]) for _ in range(steps)]


class TestLateChanges:
    """An environment that passes the test at the start may change in mid-episode."""

    def test_an_attribute_that_an_environment_gains(self):
        copies = copies_after(GainsAttribute, 10)
        copies.snapshot()
        play(copies, 50)
        resumed = LocalCopies(lambda: Adapter(GainsAttribute()), 2, seed=0)
        resumed.resume(copies.snapshot())
        assert resumed.continued
        assert play(resumed, 5) == play(copies, 5) == [5.0] * 5

    def test_an_attribute_of_one_copy(self):
        """Copies are not alike: what one keeps another may not have yet."""
        copies = copies_after(GainsAttribute, 10)
        for _ in range(50):
            copies.step(np.zeros((2, 2), np.float32), np.array([1]))
        resumed = LocalCopies(lambda: Adapter(GainsAttribute()), 2, seed=0)
        resumed.resume(copies.snapshot())
        found = resumed.step(np.zeros((2, 2), np.float32), np.arange(2)).transitions.reward
        assert found.tolist() == [11.0, 5.0]

    def test_an_attribute_that_cannot_be_pickled_later(self, capsys):
        copies = copies_after(BecomesUnpicklable, 10)
        for _ in range(50):
            copies.step(np.zeros((2, 2), np.float32), np.array([1]))
        for _ in range(2):
            snapshot = copies.snapshot()
        assert state_name(0) in snapshot
        assert state_name(1) not in snapshot
        said = capsys.readouterr().err
        assert said.count("note:") == 1
        assert "the state of learner 1's environment can no longer be captured" in said
        assert "a resume begins a new episode" in said
        resumed = LocalCopies(lambda: Adapter(BecomesUnpicklable()), 2, seed=0)
        resumed.resume(snapshot)
        assert not resumed.continued
        assert resumed.observations[:, 0].tolist() == [10, 0]
        assert resumed.num_episodes.tolist() == [1, 2]
        assert "learner 1 begins a new episode" in capsys.readouterr().err

    def test_a_state_that_cannot_be_restored(self, capsys):
        copies = copies_after(BecomesUnreadable, 10)
        for _ in range(50):
            copies.step(np.zeros((2, 2), np.float32), np.array([0]))
        resumed = LocalCopies(lambda: Adapter(BecomesUnreadable()), 2, seed=0)
        resumed.resume(copies.snapshot())
        assert resumed.observations[:, 0].tolist() == [0, 10]
        assert not resumed.continued
        assert "learner 0 begins a new episode" in capsys.readouterr().err
