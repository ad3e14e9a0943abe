"""Rewards that come late."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from p3s.envs import DelayedReward, make_env
from tests.helpers import Counter


def rewards_of(env) -> list[float]:
    env.reset()
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
        rewards.append(reward)
        over = terminated or truncated
    return rewards


class TestDelay:
    @pytest.mark.parametrize("truncates", [False, True])
    def test_pays_every_third_step_and_at_the_end(self, truncates):
        env = DelayedReward(Counter(7, truncates), 3)
        for _ in range(2):
            assert rewards_of(env) == [0, 0, 6, 0, 0, 15, 7]

    @pytest.mark.parametrize("truncates", [False, True])
    def test_pays_only_at_the_end(self, truncates):
        assert rewards_of(DelayedReward(Counter(4, truncates), "end")) == [0, 0, 0, 10]

    def test_reset_clears(self):
        env = DelayedReward(Counter(7), 5)
        env.reset()
        env.step(np.zeros(2))
        assert sum(rewards_of(env)) == 28

    def test_truncation_by_a_time_limit_pays(self):
        env = make_env("Pendulum-v1", delay="end")
        env.reset(seed=0)
        rewards = [env.step(np.zeros(1))[1] for _ in range(200)]
        assert not any(rewards[:-1])
        assert rewards[-1] < -1

    def test_registered(self):
        env = gymnasium.make("p3s/DelayedHopper-v5")
        plain = gymnasium.make("Hopper-v5")
        env.reset(seed=0)
        plain.reset(seed=0)
        late, now, over = [], [], False
        while not over:
            late.append(env.step(np.zeros(3, np.float32))[1])
            _, reward, terminated, truncated, _ = plain.step(np.zeros(3, np.float32))
            now.append(reward)
            over = terminated or truncated
        assert sum(late) == pytest.approx(sum(now))
        assert np.count_nonzero(late) == -(-len(late) // 20)
