"""The packages themselves, where they are installed; functional_styles.py stands in for them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from p3s.envs import functional_of, make_env, parse_name
from p3s.errors import UserError
from tests.functional_styles import BraxState, BraxStyle, GymnaxStyle


def parameters(method) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


def made(name: str, **arguments):
    return make_env(parse_name(name, arguments=arguments))


def ends(env, steps: int) -> list[tuple[bool, bool]]:
    """Terminated and truncated of the first steps of an episode."""
    env.reset(seed=0)
    push = np.zeros(env.env_spec.action_size, np.float32)
    return [env.step(push)[2:4] for _ in range(steps)]


class TestGymnax:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("gymnax")

    def test_the_stand_in_has_its_interface(self):
        from gymnax.environments.environment import Environment

        for method in ("reset", "step", "reset_env", "step_env", "is_truncated"):
            ours, theirs = getattr(GymnaxStyle, method), getattr(Environment, method)
            assert parameters(ours) == parameters(theirs), method

    def test_its_time_limit_is_a_truncation(self):
        limited = made("gymnax:Pendulum-v1", max_episode_steps=3)
        assert ends(limited, 3) == [(False, False)] * 2 + [(False, True)]
        assert ends(made("gymnax:Pendulum-v1"), 200)[-2:] == [(False, False), (False, True)]

    def test_arguments_are_its_parameters(self):
        env = made("gymnax:Pendulum-v1", max_torque=1.5)
        assert env.unwrapped.action_space.high.tolist() == [1.5]
        with pytest.raises(UserError, match=r"cannot be made: TypeError: .*max_tork"):
            made("gymnax:Pendulum-v1", max_tork=1.5)

    def test_unknown_names(self):
        with pytest.raises(UserError, match=r"unknown gymnax environment .* Pendulum-v1"):
            made("gymnax:Pendlum-v1")


class TestBrax:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("brax.envs")

    def test_the_stand_in_has_its_interface(self):
        from brax.envs.base import Env, State

        assert parameters(BraxStyle.reset) == parameters(Env.reset)
        assert parameters(BraxStyle.step) == parameters(Env.step)
        assert set(vars(BraxState)["__dataclass_fields__"]) == set(State.__dataclass_fields__)

    def test_its_time_limit_is_a_truncation(self):
        assert functional_of(made("brax:fast").env).step_limit == 1000
        env = made("brax:fast", max_episode_steps=3)
        assert ends(env, 3) == [(False, False)] * 2 + [(False, True)]

    def test_what_it_refuses(self):
        with pytest.raises(UserError, match="unknown brax environment 'antt': did you mean ant"):
            made("brax:antt")
        with pytest.raises(UserError, match="cannot be made: ValueError: backend should be in"):
            made("brax:inverted_pendulum", backend="none")

    def test_an_environment_that_resets_itself_is_refused(self):
        from brax import envs

        with pytest.raises(UserError, match=r"^AutoResetWrapper resets itself.*auto_reset=False"):
            make_env(lambda: envs.create("fast"))
        env = make_env(lambda: envs.create("fast", episode_length=3, auto_reset=False))
        assert ends(env, 3) == [(False, False)] * 2 + [(False, True)]


@pytest.mark.slow
def test_playground():
    pytest.importorskip("mujoco_playground")
    env = made("playground:CartpoleSwingup", max_episode_steps=3)
    assert functional_of(make_env("playground:CartpoleSwingup").env).step_limit == 1000
    assert ends(env, 3) == [(False, False)] * 2 + [(False, True)]
