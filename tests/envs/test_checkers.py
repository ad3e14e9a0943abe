"""Our environments pass the checkers that other libraries run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import p3s
from p3s.envs import Adapter, with_stacking
from tests.helpers import Counter
from tests.probe_worlds import Catch


@pytest.mark.parametrize(
    "env", ["Pendulum-v1", "Taxi-v4", "HalfCheetah-v5", "Delayed Ant-v1", Catch]
)
def test_gymnasiums_checker(env):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends bounds and to check without wrappers
        check_env(p3s.make_env(env), skip_render_check=True)


def test_the_spec_makes_the_same_again():
    env = with_stacking(lambda: p3s.make_env("Pendulum-v1", delay=5), 2)()
    again = env.spec.make()
    assert isinstance(again, Adapter)
    assert again.env_spec == env.env_spec
    assert again.env.delay == 5
    actions = [np.full(1, value, np.float32) for value in (0.5, -1.0, 1.0, 0.0, 0.25)]
    for each in (env, again):
        each.reset(seed=3)
    for action in actions:
        ours, theirs = env.step(action), again.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]


def test_observations_are_in_their_space():
    """What Stable-Baselines3's checker asks, which is not installed here."""
    parts = {"camera": spaces.Box(0, 255, (4, 4, 3), np.uint8), "joints": spaces.Box(-1, 1, (2,))}
    for env in (p3s.make_env(Catch), Adapter(Counter(observation_space=spaces.Dict(parts)))):
        observation, info = env.reset(seed=0, options={})
        assert env.observation_space.contains(observation)
        assert info == {}
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert [type(value) for value in (reward, terminated, truncated, info)] == [
            float,
            bool,
            bool,
            dict,
        ]
