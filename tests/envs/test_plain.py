"""Environment states without pickle: plain values, and which environments have only those."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import make_env
from p3s.envs.plain import NotPlain, from_plain, to_plain
from p3s.envs.state import capture, needs_pickle, restore, uncaptured
from tests.helpers import Counter


class TestValues:
    def test_come_back_as_they_were(self):
        rng = np.random.default_rng(3)
        rng.random(5)
        value = {
            "numbers": [1, -0.0, float("inf"), 2**100, True, None, np.float32(0.1), np.int64(7)],
            ("a", 1): b"\x00\xff",
            "array": np.arange(6, dtype=np.int16).reshape(2, 3),
            "empty": np.zeros((0, 4)),
            "rng": rng,
        }
        again = from_plain(to_plain(value))
        assert np.array_equal(again.pop("rng").random(9), value.pop("rng").random(9))
        for name in ("array", "empty"):
            ours, theirs = value.pop(name), again.pop(name)
            assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape)
            assert np.array_equal(ours, theirs)
            assert theirs.flags.writeable
        assert repr(again) == repr(value)

    @pytest.mark.parametrize(
        "value", [object(), lambda: 0, np.array([object()]), spaces.Discrete(2), {1, 2}]
    )
    def test_without_a_plain_form(self, value):
        with pytest.raises(NotPlain):
            to_plain(value)

    def test_an_object_that_occurs_twice_would_become_two(self):
        shared = np.zeros(2)
        with pytest.raises(NotPlain, match="twice"):
            to_plain([shared, shared])

    @pytest.mark.parametrize(
        "text",
        [
            '{"array": ["<f8", [1000000000000], ""]}',
            '{"array": ["|O", [1], "AAAAAAAAAAA="]}',
            '{"number": ["<f8", ""]}',
            '{"what": 1}',
            '{"array": 3}',
            '{"tuple": 5}',
            "{}",
            "nothing",
            "[" * 100_000,
        ],
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises((ValueError, IndexError)):
            from_plain(text.encode())


class Itself(Counter):
    """Keeps its count where only its own methods reach it."""

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


def state_after(make, steps: int = 5) -> tuple[bytes, gymnasium.Env]:
    left_out = uncaptured(make, seed=1)
    assert left_out is not None
    env = make()
    env.reset(seed=7)
    for _ in range(steps):
        env.step(np.zeros(env.action_space.shape, env.action_space.dtype))
    return capture(env, left_out), env


@pytest.mark.parametrize("name", ["Hopper-v5", "Delayed Ant-v1", "Pendulum-v1", "CartPole-v1"])
def test_named_environments_need_no_pickle(name):
    state, env = state_after(partial(make_env, name))
    assert not needs_pickle(state)
    again = make_env(name)
    again.reset(seed=8)
    restore(again, state)
    action = np.zeros(env.action_space.shape, env.action_space.dtype)
    for _ in range(3):
        assert np.array_equal(env.step(action)[0], again.step(action)[0])


def test_an_environment_that_captures_itself():
    state, env = state_after(partial(make_env, partial(Itself, length=100)))
    layers, _, own = from_plain(state)
    assert (layers[-1], own) == ({}, {"count": 5})
    again = make_env(partial(Itself, length=100))
    again.reset(seed=8)
    restore(again, state)
    assert again.unwrapped.count == env.unwrapped.count == 5


def test_a_changed_attribute_without_a_plain_form_is_pickled():
    class Marked(Counter):
        def reset(self, seed=None, options=None):
            self.seen = {0}
            return super().reset(seed=seed)

        def step(self, action):
            self.seen.add(self.count)
            return super().step(action)

    state, _ = state_after(partial(make_env, partial(Marked, length=100)))
    assert needs_pickle(state)
