"""DDPG, deep deterministic policy gradient (Lillicrap et al. 2016).

    value step    y = r + discount * gamma * Q'(s', pi'(s'));  minimize mean (y - Q(s, a))²
    policy step   minimize mean(-Q(s, pi(s)) + weight * D(pi(s), guide(s)))
                  targets <- (1 - tau) targets + tau online

This is TD3 without its three remedies: one Q, no noise on target actions, no delay of the policy.
Sizes and rates are TD3's, so that the two differ in the algorithm only.

Differs from the original in: no batch normalization and no weight decay; the action enters the
first layer of Q, not the second. Its noise is `exploration_noise_kind` ornstein_uhlenbeck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.parts.deterministic import DeterministicActorCritic
from p3s.fields.types import Count, Critics


@dataclass(frozen=True, kw_only=True)
class DDPG(DeterministicActorCritic):
    """Deep deterministic policy gradient."""

    name: ClassVar[str] = "ddpg"

    policy_period: Count = 1
    """Value updates per policy update."""
    num_critics: Critics = 1
    """Value networks; the smallest estimate is the target, and the policy climbs the first."""

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros(shape, jnp.float32)
