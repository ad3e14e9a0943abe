"""The catch game: what its pixels show, and what it pays."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from p3s.envs import Adapter
from p3s.envs.state import uncaptured
from tests.probe_worlds import Catch


def played(policy, episodes: int, discrete: bool = True) -> np.ndarray:
    """Returns of episodes; policy: (ball, paddle) columns of pixels -> action."""
    env, returns = Catch(discrete), []
    for seed in range(episodes):
        image, _ = env.reset(seed=seed)
        total, steps, over = 0.0, 0, False
        while not over:
            ball = np.flatnonzero((image == 255).any(axis=(0, 2))).mean()
            paddle = np.flatnonzero((image == 128).any(axis=(0, 2))).mean()
            image, reward, over, _, _ = env.step(policy(ball, paddle))
            total, steps = total + reward, steps + 1
        assert steps == 9
        returns.append(total)
    return np.array(returns)


@pytest.mark.parametrize("discrete", [True, False])
def test_what_the_pixels_show_is_enough_to_catch_every_ball(discrete):
    def follow(ball: float, paddle: float):
        side = np.sign(ball - paddle) if abs(ball - paddle) > 2 else 0
        return int(side) + 1 if discrete else np.array([side], np.float32)

    assert (played(follow, 40, discrete) == 1).all()


def test_chance_catches_few():
    draw = np.random.default_rng(0)
    assert played(lambda ball, paddle: draw.integers(3), 400).mean() < -0.4


@pytest.mark.parametrize("discrete", [True, False])
def test_is_a_gymnasium_environment_that_can_be_captured(discrete):
    check_env(Catch(discrete), skip_render_check=True)
    assert uncaptured(lambda: Adapter(Catch(discrete)), seed=5) is not None
