"""Normalized rewards: the discounted return by hand, minibatches, running ahead, resume, shards."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import Replay, memory_needed
from p3s.experience.reward_scale import RewardScale
from p3s.experience.rows import unpack_transitions
from p3s.types import EnvSpec, Transition
from tests.helpers import assert_same_bits, small_training

SPEC = EnvSpec.flat(1, 1)


def step(*rewards: float) -> Transition:
    count = len(rewards)
    nothing, one = np.zeros((count, 1), np.float32), np.ones(count, np.float32)
    return Transition(nothing, nothing, np.array(rewards, np.float64), one, nothing)


def replay(num_steps: int = 1) -> Replay:
    return Replay(
        100, SPEC, 50, 0, NoNormalizer(), num_steps, reward_scale=RewardScale(0.5)
    )  # fmt: skip


class TestByHand:
    """gamma = 0.5. Copy 0: R = 4, 2 + 2 = 4, ended, then 8. Copy 1: R = 0, 2, 1 + 1 = 2."""

    def scale(self) -> RewardScale:
        scale = RewardScale(0.5)
        scale.see(np.array([4.0, 0.0]), [0, 1], [])
        scale.see(np.array([2.0, 2.0]), [0, 1], [0])
        scale.see(np.array([8.0, 1.0]), [0, 1], [])
        return scale

    def test_divisor(self):
        """The latest step counts only if the pending one is asked for."""
        before, now = np.std([4, 0, 4, 2]), np.std([4, 0, 4, 2, 8, 2])
        assert self.scale().divisor(pending=False) == pytest.approx(before)
        assert self.scale().divisor(pending=True) == pytest.approx(now)

    def test_nothing_to_go_by(self):
        scale = RewardScale(0.5)
        assert scale.divisor(pending=True) == 1
        for _ in range(3):
            scale.see(np.array([7.0]), [0], [0])
        assert scale.divisor(pending=True) == 1

    def test_a_cut_begins_anew(self):
        scale = self.scale()
        scale.cut()
        scale.see(np.array([6.0, 6.0]), [0, 1], [])
        expected = np.std([4, 0, 4, 2, 8, 2, 6, 6])
        assert scale.divisor(pending=True) == pytest.approx(expected)

    def test_resumed(self):
        first, second = self.scale(), RewardScale(0.5)
        second.resume(first.snapshot())
        for scale in (first, second):
            scale.see(np.array([3.0, 5.0]), [1, 0], [])
        assert first.divisor(pending=True) == second.divisor(pending=True)
        assert first.divisor(pending=False) == second.divisor(pending=False)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_minibatches(num_steps):
    """Rewards 1 and 3 of two copies: after one step the std is 1, after two more is taken."""
    ours = replay(num_steps)
    for _ in range(2):
        ours.add(step(1.0, 3.0), [0, 1], [0, 1])
    taken = ours.take(0, 1, num_pending=0)
    assert taken is not None
    rewards = np.asarray(unpack_transitions(SPEC, taken.rows[0]).reward).reshape(50, -1)[:, 0]
    assert sorted(set(rewards.tolist())) == [1.0, 3.0]
    ours.add(step(5.0, 5.0), [0, 1], [0, 1])
    ours.add(step(5.0, 5.0), [0, 1], [0, 1])
    divisor = np.std([1, 3, 1, 3, 5, 5])
    rewards = np.asarray(unpack_transitions(SPEC, ours.take(0, 1, num_pending=0).rows[0]).reward)
    found = sorted(set(rewards.reshape(50, -1)[:, 0].tolist()))
    assert found == pytest.approx([1 / divisor, 3 / divisor, 5 / divisor])


def test_the_replay_holds_rewards_as_they_came():
    ours = replay()
    for _ in range(3):
        ours.add(step(-9.0, 3.0), [0, 1], [])
        ours.take(0, 1, num_pending=0)
    assert ours.largest_reward() == 9


def test_memory():
    assert memory_needed(10, SPEC, marked=True) == 10 * 6 * 4 == replay().ring.rows[:10].nbytes


def test_running_ahead_changes_nothing():
    fields = {"num_learners": 2, "normalize_rewards": True, "evaluation_period": 0}
    ours, theirs = (small_training("Pendulum-v1", seed=1, **fields) for _ in range(2))
    theirs.crew.updater._overlap = False
    for training in (ours, theirs):
        training.run(300)
    assert_same_bits(ours, theirs)
