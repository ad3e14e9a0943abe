# pyright: reportAttributeAccessIssue=false
"""Capture and restore the state of an environment in the middle of an episode.

Each layer of the wrapper stack contributes its attributes, a MuJoCo simulation its integration
state, a game of the Arcade Learning Environment that of its emulator, and an environment with
`get_state` and `set_state` what those give and take. Whether that is enough is not assumed but
tried: `uncaptured` plays on from a restored copy and compares to the bit. Attributes that cannot be
pickled at the start are then known not to be needed. One that cannot be pickled later is not, so
`capture` fails.

A state is plain (plain.py) where it can be. Attributes without a plain form, such as spaces, are
left out as long as they are what a new copy of the environment has. If one of them has changed, the
whole state is pickled.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from p3s.envs.plain import NotPlain, from_plain, to_plain

_SKIPPED = ("env", "model", "data", "mujoco_renderer")
_PROBE_STEPS = 25


class LeftOut(NamedTuple):
    """What a captured state can do without, for each layer, outermost first."""

    unpicklable: list[set[str]]
    constants: list[dict[str, bytes]]
    """Attributes without a plain form, pickled, as a new copy has them."""
    own_state: bool
    """Whether the environment captures itself, see `_own_state`."""


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    while True:
        yield env
        if not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _picklable(value: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def _left_out(env: gymnasium.Env, own_state: bool) -> LeftOut:
    unpicklable, constants = [], []
    for layer in _layers(env):
        unpicklable.append({name for name, value in vars(layer).items() if not _picklable(value)})
        others = {name: value for name, value in vars(layer).items() if not _is_plain(value)}
        constants.append(
            {
                name: pickle.dumps(value)
                for name, value in others.items()
                if name not in unpicklable[-1] and name not in _SKIPPED
            }
        )
    return LeftOut(unpicklable, constants, own_state)


def _is_plain(value: Any) -> bool:
    try:
        to_plain(value)
    except NotPlain:
        return False
    return True


def _simulation(env: gymnasium.Env) -> tuple[Any, Any, Any] | None:
    """MuJoCo, and the environment's model and data; None if it is not a MuJoCo environment."""
    mujoco = sys.modules.get("mujoco")  # imported by the environment, if it needs it
    base = env.unwrapped
    model, data = getattr(base, "model", None), getattr(base, "data", None)
    if mujoco and isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData):
        return mujoco, model, data
    return None


def _own_state(base: Any) -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
    """How an environment gives its state and takes it, if it has functions for that."""
    own = getattr(base, "get_state", None), getattr(base, "set_state", None)
    if all(map(callable, own)):
        return own  # pyright: ignore[reportReturnType]
    arcade = sys.modules.get("ale_py")  # imported by the environment, if it is a game of it
    if arcade is not None and isinstance(base, arcade.AtariEnv):
        return (
            lambda: base.clone_state(include_rng=True).serialize(),
            lambda state: base.restore_state(arcade.ALEState(state)),
        )
    return None


def capture(env: gymnasium.Env, left_out: LeftOut) -> bytes:
    """The state of an environment, as bytes for `restore`; raises if it cannot be pickled."""
    attributes = _attributes(env, left_out)
    functions = _own_state(env.unwrapped) if left_out.own_state else None
    own = None if functions is None else functions[0]()
    physics = None
    simulation = _simulation(env)
    if simulation is not None:
        mujoco, model, data = simulation
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        integration = np.empty(mujoco.mj_stateSize(model, kind), np.float64)
        mujoco.mj_getState(model, data, integration, kind)
        physics = (integration, data.xpos.copy(), data.xipos.copy())
    plain = [
        {
            name: value
            for name, value in own_attributes.items()
            if name not in constants or constants[name] != pickle.dumps(value)
        }
        for own_attributes, constants in zip(attributes, left_out.constants, strict=True)
    ]
    try:
        return to_plain((plain, physics, own))
    except NotPlain:
        return pickle.dumps((attributes, physics, own))


def _attributes(env: gymnasium.Env, left_out: LeftOut) -> list[dict[str, Any]]:
    """The attributes of each layer that can be captured, outermost first."""
    attributes = [
        {
            name: value
            for name, value in vars(layer).items()
            if name not in _SKIPPED and (name not in names or _picklable(value))
        }
        for layer, names in zip(_layers(env), left_out.unpicklable, strict=True)
    ]
    if left_out.own_state:
        attributes[-1] = {}
    return attributes


def needs_pickle(state: bytes) -> bool:
    """Whether restoring a state unpickles it, which can execute anything."""
    return not state.startswith(b"{")


def restore(env: gymnasium.Env, state: bytes) -> None:
    """Put a freshly made and reset environment into a captured state."""
    values: Any = pickle.loads(state) if needs_pickle(state) else from_plain(state)
    attributes, physics, *rest = values
    own = rest[0] if rest else None  # older states end before it
    for layer, own_attributes in zip(_layers(env), attributes, strict=True):
        vars(layer).update(own_attributes)
    if own is not None:
        functions = _own_state(env.unwrapped)
        assert functions is not None
        functions[1](own)
    simulation = _simulation(env)
    if simulation is not None and physics is not None:
        mujoco, model, data = simulation
        integration, xpos, xipos = physics
        mujoco.mj_setState(model, data, integration, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(model, data)
        # Center-of-mass velocities of Ant and Humanoid are differences to these.
        data.xpos[:], data.xipos[:] = xpos, xipos


def uncaptured(make: Any, seed: int) -> LeftOut | None:
    """What captured states leave out; None if a restored environment would not play on exactly."""
    original, copy = make(), make()
    captures_itself = _own_state(original.unwrapped) is not None
    try:
        for own_state in (True, False) if captures_itself else (False,):
            left_out = _tried(original, copy, own_state, seed)
            if left_out is not None:
                return left_out
        return None
    finally:
        original.close()
        copy.close()


def _tried(
    original: gymnasium.Env, copy: gymnasium.Env, own_state: bool, seed: int
) -> LeftOut | None:
    """What is left out this way; None if a restored copy does not play on exactly."""
    try:
        original.reset(seed=seed)
        left_out = _left_out(original, own_state)
        return left_out if _plays_on(original, copy, left_out, seed) else None
    except Exception:
        return None


def _plays_on(original: gymnasium.Env, copy: gymnasium.Env, left_out: LeftOut, seed: int) -> bool:
    """Whether a copy restored in mid-episode plays on as the captured one does."""
    actions = deepcopy(original.action_space)  # the original is captured as it is
    actions.seed(seed)
    for _ in range(3):
        _, _, terminated, truncated, _ = original.step(original.sample_action(actions))
        if terminated or truncated:
            original.reset()
    copy.reset(seed=seed + 1)
    restore(copy, capture(original, left_out))
    for _ in range(_PROBE_STEPS):
        action = original.sample_action(actions)
        ours, theirs = original.step(action), copy.step(action)
        if not (np.array_equal(ours[0], theirs[0]) and ours[1:4] == theirs[1:4]):
            return False
        if ours[2] or ours[3]:
            return np.array_equal(original.reset(seed=seed)[0], copy.reset(seed=seed)[0])
    return True
