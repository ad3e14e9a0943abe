"""Wrappers by name, with arguments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import p3s
from p3s.envs import make_env, parse_name
from p3s.envs.wrapping import WrapperName, parse_wrapper
from p3s.errors import UserError
from tests.helpers import call, small_config

TIME_LIMIT = "gymnasium.wrappers:TimeLimit"


def scaled(env, factor=2.0, *, more=None):
    """A function that wraps."""
    return gymnasium.wrappers.TransformReward(env, lambda reward: factor * reward)


def made(*wrappers: str) -> p3s.envs.Adapter:
    return make_env(parse_name("Pendulum-v1", wrappers=wrappers))


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("a.b:C", (), {}),
        ("a.b:C()", (), {}),
        (" a.b:C(3) ", (3,), {}),
        ("a.b:C(-1.5, 'x:y(z)', keys=['a', 'b'])", (-1.5, "x:y(z)"), {"keys": ["a", "b"]}),
        ("a.b:C(x=None, y={'a': (True, 2)},)", (), {"x": None, "y": {"a": (True, 2)}}),
    ],
)
def test_is_taken_apart(text, args, kwargs):
    assert parse_wrapper(text) == WrapperName("a.b", "C", args, kwargs)


@pytest.mark.parametrize("text", ["C", "C(3)", "a:C(3", "a:b:C", "a:C)", "a b:C", ""])
def test_what_is_no_name(text):
    with pytest.raises(UserError, match="a wrapper is named module:Name or") as caught:
        parse_wrapper(text)
    assert caught.value.field == "wrappers"


@pytest.mark.parametrize(
    "arguments",
    ["open('x')", "x", "1, x=y", "**{'a': 1}", "*[1]", "1 2", "x=1, x=2", "1)(2", "lambda: 1",
     "f'{1}'", "[1 for _ in 'ab']", "9**9", "x=__import__('os')", "1) or (2", "[" * 100_000],
)  # fmt: skip
def test_only_literals_are_read(arguments):
    with pytest.raises(UserError, match="cannot be read: give numbers, text in quotes"):
        parse_wrapper(f"{TIME_LIMIT}({arguments})")


def test_arguments_arrive_the_innermost_first():
    env = made(f"{TIME_LIMIT}(3)", "tests.envs.test_wrapping:scaled(factor=0.5)")
    plain = made()
    rewards = []
    for each in (env, plain):
        each.reset(seed=0)
        rewards.append([each.step(np.zeros(1)) for _ in range(3)])
    ours, theirs = ([step[1] for step in steps] for steps in rewards)
    np.testing.assert_allclose(ours, 0.5 * np.array(theirs))
    assert [step[3] for step in rewards[0]] == [False, False, True]


@pytest.mark.parametrize(
    ("wrapper", "problem"),
    [
        (f"{TIME_LIMIT}(steps=3)", "it takes no argument 'steps' (it takes max_episode_steps)"),
        (TIME_LIMIT, "missing a required argument: 'max_episode_steps' (it takes max_episode"),
        (f"{TIME_LIMIT}(3, 4)", "too many positional arguments (it takes max_episode_steps)"),
        ("gymnasium.wrappers:OrderEnforcing(disable_render_order_enforcing=True, a=1)", "'a'"),
        ("tests.envs.test_wrapping:scaled(word=1)", "no argument 'word' (it takes factor, more)"),
        (f"{TIME_LIMIT}(max_episode_steps=-1)", "cannot be made: ValueError: Expect"),
    ],
)
def test_a_wrapper_that_does_not_take_its_arguments_is_named_in_one_line(wrapper, problem, capsys):
    code, _, errors = call(capsys, "train", "Pendulum-v1", "--wrappers", wrapper)
    assert (code, errors.count("\n")) == (2, 1)
    assert f"the wrapper {wrapper} cannot be made: " in errors
    assert problem in errors


def test_a_policy_is_played_in_the_same_wrappers(tmp_path):
    config = small_config(parse_name("Pendulum-v1", wrappers=(f"{TIME_LIMIT}(7)",)))
    written = p3s.envs.EnvName.from_json(config.env.to_json())
    assert written.wrappers == (f"{TIME_LIMIT}(7)",)
    assert make_env(written).env.spec.max_episode_steps == 7
