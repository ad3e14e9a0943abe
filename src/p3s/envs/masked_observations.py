"""Masks of allowed actions, and where they travel: at the end of the observation they belong to.

An environment with discrete actions may say which of them are allowed now. The mask is appended to
the observation, along its last axis, as zeros and ones. So whoever handles observations handles
masks: workers, replay, several-step returns, checkpoints, shards, evaluations, distances. Only the
adapter, which appends them, and the algorithms that keep to them know of it.

    flat observation (n,)          ->  (n + actions,)
    image (height, width, c)       ->  (height, width, c + 1), the mask in the first pixels of the
                                       last channel; more channels if there are more actions
    packed (bytes,)                ->  (bytes + actions,)
"""

from __future__ import annotations

from math import prod

import numpy as np

from p3s.types import Array

FORBIDDEN = -1e9
"""Logit or value of a forbidden action: so low that it has no probability, and finite, so 0 · log 0
is not NaN."""


def mask_columns(shape: tuple[int, ...], num_actions: int) -> int:
    """How much longer the last axis of an observation gets by a mask."""
    return -(-num_actions // prod(shape[:-1]))


def join_mask(observation: np.ndarray, mask: np.ndarray, axes: int) -> np.ndarray:
    """Observations with their masks, (batch..., actions); axes: of one observation."""
    shape = observation.shape[observation.ndim - axes :]
    batch = observation.shape[: observation.ndim - axes]
    columns = mask_columns(shape, mask.shape[-1])
    room = np.zeros((*batch, prod(shape[:-1]) * columns), observation.dtype)
    room[..., : mask.shape[-1]] = mask
    return np.concatenate([observation, room.reshape(*batch, *shape[:-1], columns)], axis=-1)


def split_mask(observation: Array, shape: tuple[int, ...]) -> tuple[Array, Array | None]:
    """Observations of this shape, and their masks if they have any, with zeros at the end."""
    if observation.shape[-1] == shape[-1]:
        return observation, None
    batch = observation.shape[: observation.ndim - len(shape)]
    mask = observation[..., shape[-1] :].reshape(*batch, -1)
    return observation[..., : shape[-1]], mask > 0


def allowed_only(values: Array, mask: Array | None) -> Array:
    """Logits or values, (..., actions), of which forbidden actions have the lowest."""
    if mask is None:
        return values
    import jax.numpy as jnp  # not for workers that only play

    return jnp.where(mask[..., : values.shape[-1]], values, FORBIDDEN)
