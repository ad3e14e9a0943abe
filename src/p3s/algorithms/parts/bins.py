"""Distributions of returns over equally spaced values (C51, Bellemare et al. 2017).

A network gives a logit for each of K values z_1 ... z_K, the bins, from -limit to limit. A target
moves the bins to y_k = r + discount * gamma * z_k. Its mass there is brought back to the bins: what
lies between two of them is shared between both, in proportion to how near it is; what lies beyond
the ends goes to the end.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def bin_values(num_bins: int, limit: jax.Array | float) -> jax.Array:
    """z_1 ... z_K, (bins,)."""
    return limit * jnp.asarray(np.linspace(-1.0, 1.0, num_bins), jnp.float32)


def share_out(
    probabilities: jax.Array, values: jax.Array, num_bins: int, limit: jax.Array | float
) -> jax.Array:
    """Mass at any values as mass at the bins: (batch, k), (batch, k) -> (batch, bins)."""
    width = 2.0 * limit / (num_bins - 1)
    places = (jnp.clip(values, -limit, limit) + limit) / width
    distances = jnp.abs(places[..., None] - jnp.arange(num_bins, dtype=jnp.float32))
    return jnp.sum(probabilities[..., None] * jnp.maximum(1.0 - distances, 0.0), axis=-2)


def mean_return(logits: jax.Array, values: jax.Array) -> jax.Array:
    """The mean of a distribution over the bins, (..., bins) -> (...)."""
    return jnp.sum(jax.nn.softmax(logits) * values, axis=-1)


def cross_entropy(logits: jax.Array, target: jax.Array) -> jax.Array:
    """-sum_k target_k log softmax(logits)_k; (networks, batch, bins), (batch, bins)."""
    return -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)
