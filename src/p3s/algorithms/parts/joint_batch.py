"""A joint batch for Qs with batch normalization (CrossQ, Bhatt et al. 2024).

    q, q' = Q_j([s; s'], [a; a'])      one pass in training mode over both halves
    minimize sum_j ½ mean (y - q)²,    y from q', without gradient

Batch normalization alone would fail: actions of the replay and of the policy are distributed
differently, so that statistics of the one would be wrong for the other. In a joint batch both are
normalized by the statistics of their mixture.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import per_network
from p3s.networks import train_network
from p3s.types import Params, Transition


def joint_pass(
    values: Params, batch: Transition, next_action: jax.Array
) -> tuple[jax.Array, jax.Array, Params]:
    """Outputs of stacked networks at (s, a) and at (s', a'), (networks, batch, outputs) each.

    And the networks with their statistics after the pass.
    """
    seen = jnp.concatenate([batch.observation, batch.next_observation])
    actions = jnp.concatenate([batch.action, next_action])
    inputs, _ = per_network(values, None, seen, actions)
    outputs, after = jax.vmap(train_network)(values, *inputs)
    now, ahead = jnp.split(outputs, 2, axis=1)
    return now, ahead, after


def joint_value_loss(
    values: Params,
    batch: Transition,
    next_action: jax.Array,
    target_of: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, tuple[Params, jax.Array]]:
    """Sum over j of ½ mean (y - Q_j(s, a))², and the mean of y.

    target_of: y from Q_j(s', a'), (networks, batch) -> (batch,).
    """
    now, ahead, after = joint_pass(values, batch, next_action)
    target = jax.lax.stop_gradient(target_of(ahead[..., 0]))
    return 0.5 * jnp.sum(jnp.mean((now[..., 0] - target) ** 2, axis=1)), (after, target.mean())
