# pyright: reportAttributeAccessIssue=false
"""Capture and restore the state of an environment in the middle of an episode.

Each layer of the wrapper stack contributes the attributes that can be pickled, and a MuJoCo
simulation its integration state. Whether that is enough is not assumed but tried: `uncaptured`
plays on from a restored copy and compares to the bit. Attributes that cannot be pickled at the
start are then known not to be needed. One that cannot be pickled later is not, so `capture` fails.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

_SKIPPED = ("env", "model", "data", "mujoco_renderer")
_PROBE_STEPS = 25
LeftOut = list[set[str]]
"""For each layer, outermost first, the attributes that a captured state can do without."""


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


def _unpicklable_names(env: gymnasium.Env) -> LeftOut:
    return [
        {name for name, value in vars(layer).items() if not _picklable(value)}
        for layer in _layers(env)
    ]


def _simulation(env: gymnasium.Env) -> tuple[Any, Any, Any] | None:
    """MuJoCo, and the environment's model and data; None if it is not a MuJoCo environment."""
    mujoco = sys.modules.get("mujoco")  # imported by the environment, if it needs it
    base = env.unwrapped
    model, data = getattr(base, "model", None), getattr(base, "data", None)
    if mujoco and isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData):
        return mujoco, model, data
    return None


def capture(env: gymnasium.Env, left_out: LeftOut) -> bytes:
    """The state of an environment, as bytes for `restore`; raises if it cannot be pickled."""
    attributes = [
        {
            name: value
            for name, value in vars(layer).items()
            if name not in _SKIPPED and (name not in names or _picklable(value))
        }
        for layer, names in zip(_layers(env), left_out, strict=True)
    ]
    physics = None
    simulation = _simulation(env)
    if simulation is not None:
        mujoco, model, data = simulation
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        integration = np.empty(mujoco.mj_stateSize(model, kind), np.float64)
        mujoco.mj_getState(model, data, integration, kind)
        physics = (integration, data.xpos.copy(), data.xipos.copy())
    return pickle.dumps((attributes, physics))


def restore(env: gymnasium.Env, state: bytes) -> None:
    """Put a freshly made and reset environment into a captured state."""
    attributes, physics = pickle.loads(state)
    for layer, values in zip(_layers(env), attributes, strict=True):
        vars(layer).update(values)
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
    try:
        original.reset(seed=seed)
        left_out = _unpicklable_names(original)
        return left_out if _plays_on(original, copy, left_out, seed) else None
    except Exception:
        return None
    finally:
        original.close()
        copy.close()


def _plays_on(original: gymnasium.Env, copy: gymnasium.Env, left_out: LeftOut, seed: int) -> bool:
    """Whether a copy restored in mid-episode plays on as the captured one does."""
    original.action_space.seed(seed)
    for _ in range(3):
        _, _, terminated, truncated, _ = original.step(original.action_space.sample())
        if terminated or truncated:
            original.reset()
    copy.reset(seed=seed + 1)
    restore(copy, capture(original, left_out))
    for _ in range(_PROBE_STEPS):
        action = original.action_space.sample()
        ours, theirs = original.step(action), copy.step(action)
        if not (np.array_equal(ours[0], theirs[0]) and ours[1:4] == theirs[1:4]):
            return False
        if ours[2] or ours[3]:
            return np.array_equal(original.reset(seed=seed)[0], copy.reset(seed=seed)[0])
    return True
