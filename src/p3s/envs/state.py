# pyright: reportAttributeAccessIssue=false
"""Capture and restore the state of an environment in the middle of an episode.

Each layer of the wrapper stack contributes the attributes that can be pickled, and a MuJoCo
simulation its integration state. Whether that is enough is not assumed but tried: `can_capture`
plays on from a restored copy and compares to the bit.
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


def capturable_names(env: gymnasium.Env) -> list[list[str]]:
    """For each layer, outermost first, the attributes that can be captured."""
    return [
        [name for name, value in vars(layer).items() if name not in _SKIPPED and _picklable(value)]
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


def capture(env: gymnasium.Env, names: list[list[str]]) -> bytes:
    """The state of an environment, as bytes for `restore`."""
    attributes = [
        {name: vars(layer)[name] for name in layer_names if name in vars(layer)}
        for layer, layer_names in zip(_layers(env), names, strict=True)
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


def can_capture(make: Any, seed: int) -> bool:
    """Whether an environment restored in mid-episode plays on as the captured one does."""
    original, copy = make(), make()
    try:
        return _plays_on(original, copy, seed)
    except Exception:
        return False
    finally:
        original.close()
        copy.close()


def _plays_on(original: gymnasium.Env, copy: gymnasium.Env, seed: int) -> bool:
    original.action_space.seed(seed)
    original.reset(seed=seed)
    names = capturable_names(original)
    for _ in range(3):
        _, _, terminated, truncated, _ = original.step(original.action_space.sample())
        if terminated or truncated:
            original.reset()
    copy.reset(seed=seed + 1)
    restore(copy, capture(original, names))
    for _ in range(_PROBE_STEPS):
        action = original.action_space.sample()
        ours, theirs = original.step(action), copy.step(action)
        if not (np.array_equal(ours[0], theirs[0]) and ours[1:4] == theirs[1:4]):
            return False
        if ours[2] or ours[3]:
            return np.array_equal(original.reset(seed=seed)[0], copy.reset(seed=seed)[0])
    return True
