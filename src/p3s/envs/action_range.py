"""Actions as learners have them, in [-1, 1] or an index from 0, and in the environment's own range.

`about` is what a policy's file says of the environment's actions (`Adapter.about_spaces`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.types import EnvSpec


def own_actions(about: dict[str, Any], spec: EnvSpec, actions: np.ndarray) -> np.ndarray:
    """Actions of learners, (..., dimensions) or (...), as the environment takes them."""
    if spec.discrete:
        return actions + about["action_start"]
    low, high = (np.asarray(about[name]) for name in ("action_low", "action_high"))
    own = np.clip((low + high) / 2 + (high - low) / 2 * actions, low, high)
    integers = about.get("action_dtype")
    own = own.astype(np.float32) if integers is None else np.rint(own).astype(integers)
    return own.reshape(actions.shape[:-1] + tuple(about["action_shape"]))


def learners_actions(about: dict[str, Any], spec: EnvSpec, own: np.ndarray) -> np.ndarray:
    """Actions in the environment's own range, (batch, ...), as learners have them, float32."""
    if spec.discrete:
        return (own - about["action_start"]).reshape(len(own), 1).astype(np.float32)
    low, high = (np.asarray(about[name]) for name in ("action_low", "action_high"))
    half = np.where(high > low, (high - low) / 2, 1.0)
    scaled = (own.reshape(len(own), -1) - (low + high) / 2) / half
    return scaled.clip(-1, 1).astype(np.float32)
