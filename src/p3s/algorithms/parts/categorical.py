"""Distributions over a finite set of actions, given by logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def at_action(values: jax.Array, action: jax.Array) -> jax.Array:
    """The entry of each row that belongs to the action taken: (..., actions), (...) -> (...)."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def categorical_kl(logits: jax.Array, other_logits: jax.Array) -> jax.Array:
    """KL(softmax(logits) ‖ softmax(other_logits))."""
    log_ours, log_other = jax.nn.log_softmax(logits), jax.nn.log_softmax(other_logits)
    return jnp.sum(jnp.exp(log_ours) * (log_ours - log_other), axis=-1)
