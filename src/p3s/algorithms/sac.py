"""SAC, soft actor-critic in today's form (Haarnoja et al. 2018, "Algorithms and Applications").

    value step    a' ~ pi(s')
                  y = r + discount * gamma * (min_j Q'_j(s', a') - alpha log pi(a'|s'))
                  minimize sum_j ½ mean (y - Q_j(s, a))²
                  targets <- (1 - tau) targets + tau online
    policy step   a ~ pi(s)
                  minimize mean(alpha log pi(a|s) - min_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy)

The temperature alpha is learned so that the policy's entropy approaches `target_entropy` times
the number of action dimensions. The form with a V network and a fixed temperature is `sac_2018.py`.

Differs from the text in the temperature's loss only, see `soft_actor_critic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import Loss, bootstrap, q_values, value_loss
from p3s.algorithms.parts.soft_actor_critic import SoftActorCritic, temperature
from p3s.algorithms.parts.squashed_gaussian import (
    GaussianActorCritic,
    gaussian,
    policy_loss,
    squashed_sample,
)
from p3s.networks import Model
from p3s.types import Guide, Learner, Params, Transition


def soft_next_values(
    policy: Model,
    targets: Params,
    combine: Callable[[jax.Array], jax.Array],
    batch: Transition,
    noise: jax.Array,
    temperature: jax.Array,
) -> jax.Array:
    """min_j Q'_j(s', a') - alpha log pi(a'|s') at an action of the policy, (batch,)."""
    action, log_density = squashed_sample(gaussian(policy, batch.next_observation), noise)
    next_value = combine(q_values(targets, batch.next_observation, action))
    return next_value - temperature * log_density


@dataclass(frozen=True, kw_only=True)
class SAC(GaussianActorCritic, SoftActorCritic):
    """Soft actor-critic with a learned temperature."""

    name: ClassVar[str] = "sac"

    target_entropy: float = -1.0
    """Entropy that the temperature aims at, per action dimension."""

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        next_value = soft_next_values(
            learner.policy,
            learner.targets["value"],
            partial(self.combine, key=jax.random.fold_in(key, 1)),
            batch,
            noise,
            temperature(learner),
        )
        return bootstrap(batch, self.discount_factor, next_value)

    def value_loss(
        self, values: Params, batch: Transition, target: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        loss, after = value_loss(values, batch, target)
        return 0.5 * loss, after

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> Loss:
        return partial(
            policy_loss,
            values=learner.value,
            combine=partial(self.combine, key=jax.random.fold_in(key, 1)),
            observation=batch.observation,
            noise=jax.random.normal(key, batch.action.shape, jnp.float32),
            temperature=temperature(learner),
            guide=gaussian(guide.policy, batch.observation),
            weight=guide.weight,
        )

    def entropy_goal(self, learner: Learner, batch: Transition) -> float:
        return self.target_entropy * batch.action.shape[-1]
