"""SAC, soft actor-critic in today's form (Haarnoja et al. 2018, "Algorithms and Applications").

    value step    a' ~ pi(s')
                  y = r + discount * gamma * (min_j Q'_j(s', a') - alpha log pi(a'|s'))
                  minimise sum_j ½ mean (y - Q_j(s, a))²
                  targets <- (1 - tau) targets + tau online
    policy step   a ~ pi(s)
                  minimise mean(alpha log pi(a|s) - min_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  minimise log alpha * (entropy of pi - target entropy)

The temperature alpha is learned so that the policy's entropy comes to `target_entropy` times the
number of action dimensions. The form with a V network and a fixed temperature is `sac_2018.py`.

Differs from the text in the temperature's loss only, see `soft_actor_critic.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import bootstrap, q_values, value_loss
from p3s.algorithms.parts.soft_actor_critic import PolicyLoss, SoftActorCritic, temperature
from p3s.algorithms.parts.squashed_gaussian import (
    GaussianActorCritic,
    gaussian,
    policy_loss,
    squashed_sample,
)
from p3s.types import Guide, Learner, Params, Transition


def soft_td_target(
    policy: Params,
    target_values: Params,
    batch: Transition,
    noise: jax.Array,
    temperature: jax.Array,
    discount_factor: float,
) -> jax.Array:
    """y = r + discount * gamma * (min_j Q'_j(s', a') - alpha log pi(a'|s'))."""
    action, log_density = squashed_sample(gaussian(policy, batch.next_observation), noise)
    next_value = q_values(target_values, batch.next_observation, action).min(axis=0)
    return bootstrap(batch, discount_factor, next_value - temperature * log_density)


@dataclass(frozen=True, kw_only=True)
class SAC(GaussianActorCritic, SoftActorCritic):
    """Soft actor-critic with a learned temperature."""

    name: ClassVar[str] = "sac"

    target_entropy: float = -1.0
    """Entropy that the temperature aims at, per action dimension."""

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        return soft_td_target(
            learner.policy,
            learner.extra["target_value"],
            batch,
            noise,
            temperature(learner),
            self.discount,
        )

    def value_loss(self, values: Params, batch: Transition, target: jax.Array) -> jax.Array:
        return 0.5 * value_loss(values, batch, target)

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> PolicyLoss:
        return partial(
            policy_loss,
            values=learner.value,
            observation=batch.observation,
            noise=jax.random.normal(key, batch.action.shape, jnp.float32),
            temperature=temperature(learner),
            guide=gaussian(guide.policy, batch.observation),
            weight=guide.weight,
        )

    def wanted_entropy(self, learner: Learner, batch: Transition) -> float:
        return self.target_entropy * batch.action.shape[-1]
