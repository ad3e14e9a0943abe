"""The masks that environments offer: `info["action_mask"]`, or a method `action_masks()`.

The first is Gymnasium's custom, the second that of sb3-contrib. A mask has one entry per action,
true where it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from p3s.errors import UserError

KEY = "action_mask"
METHOD = "action_masks"


def mask_method(env: gymnasium.Env) -> Callable[[], Any] | None:
    """The environment's or a wrapper's method that gives the mask."""
    method = env.get_wrapper_attr(METHOD) if env.has_wrapper_attr(METHOD) else None
    return method if callable(method) else None


def offers_masks(env: gymnasium.Env) -> bool:
    """Whether an environment with discrete actions masks them; begins an episode to see it."""
    if not isinstance(env.action_space, spaces.Discrete):
        return False
    if mask_method(env) is not None:
        return True
    try:
        _, info = env.reset(seed=0)
    except Exception:
        return False  # the first reset that counts will raise it again, and say where
    return isinstance(info, dict) and KEY in info


def refuse_mask(env: gymnasium.Env, info: dict[str, Any], name: str) -> None:
    """UserError if an environment masks actions that cannot be masked."""
    if KEY in info or mask_method(env) is not None:
        raise UserError(
            f"{name} masks actions, but its actions are a Box: only Discrete actions have masks"
        )


def checked_mask(given: Any, num_actions: int) -> np.ndarray:
    """A mask as booleans, (..., actions); ValueError if it is not one."""
    mask = np.asarray(given)
    if mask.ndim == 0 or mask.shape[-1] != num_actions:
        found = "not a vector" if mask.ndim == 0 else f"of {mask.shape[-1]}"
        raise ValueError(f"an action mask is {found}, but there are {num_actions} actions")
    if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
        raise ValueError("an action mask holds values other than true and false")
    mask = mask.astype(bool)
    if not mask.any(axis=-1).all():
        raise ValueError("an action mask forbids all actions")
    return mask


def sample_allowed(env: gymnasium.Env, info: dict[str, Any]) -> Any:
    """A random action of the environment's own space, allowed where there is a mask."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete) or (KEY not in info and mask_method(env) is None):
        return space.sample()
    return space.sample(read_mask(env, info, int(space.n)).astype(np.int8))


def read_mask(
    env: gymnasium.Env,
    info: dict[str, Any],
    num_actions: int,
    ended: bool = False,
    terminated: bool = False,
) -> np.ndarray:
    """The mask of what an environment shows now, (actions,); ValueError if it is not one.

    Nobody acts where an episode ended: there, a missing mask allows everything, and so does an
    empty one after a termination.
    """
    began_next = ended and "final_obs" in info
    given = (info.get("final_info", {}) if began_next else info).get(KEY)
    method = mask_method(env)
    if given is None and method is not None and not began_next:
        given = method()
    if ended and (given is None or (terminated and not np.any(given))):
        return np.ones(num_actions, bool)
    if given is None:
        raise ValueError(f"info has no {KEY!r}, and there is no method {METHOD}()")
    mask = checked_mask(given, num_actions)
    if mask.ndim != 1:
        raise ValueError(f"an action mask has {mask.ndim} axes instead of one")
    return mask
