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

Three fields lead to later forms of SAC, of which `redq.py` and `droq.py` are two: the minimum over
a random subset of the Qs, the mean of all Qs for the policy, and dropout in the Qs.

Differs from the text in the temperature's loss only, see `soft_actor_critic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import bootstrap, q_values, value_loss
from p3s.algorithms.parts.soft_actor_critic import SoftActorCritic, temperature
from p3s.algorithms.parts.soft_gaussian import SoftGaussian
from p3s.algorithms.parts.squashed_gaussian import gaussian, squashed_sample
from p3s.errors import UserError
from p3s.fields.types import Count, Decay
from p3s.networks import Dropout, Model
from p3s.types import Learner, Params, Transition


def soft_next_values(
    policy: Model,
    targets: Params,
    combine: Callable[[jax.Array], jax.Array],
    batch: Transition,
    noise: jax.Array,
    temperature: jax.Array,
    dropout: Dropout | None = None,
) -> jax.Array:
    """min_j Q'_j(s', a') - alpha log pi(a'|s') at an action of the policy, (batch,)."""
    action, log_density = squashed_sample(gaussian(policy, batch.next_observation), noise)
    next_value = combine(q_values(targets, batch.next_observation, action, dropout))
    return next_value - temperature * log_density


@dataclass(frozen=True, kw_only=True)
class SAC(SoftGaussian, SoftActorCritic):
    """Soft actor-critic with a learned temperature."""

    name: ClassVar[str] = "sac"

    subset_size: Count | None = None
    """Value networks, drawn anew for every update, whose smallest estimate is the target; None:
    all of them."""
    policy_estimate: Literal["as_targets", "mean"] = "as_targets"
    """What the policy climbs: as targets do, or the mean of all value networks."""
    dropout: Decay | None = None
    """Share of units that the value networks leave out at random in updates; None: no dropout."""

    def problem(self) -> UserError | None:
        if self.subset_size is not None and self.subset_size > self.num_critics:
            message = f"subset_size must be at most num_critics, {self.num_critics}"
            return UserError(message, "subset_size")
        return super().problem()

    def combine(self, values: jax.Array, key: jax.Array) -> jax.Array:
        if self.subset_size is not None:
            values = jax.random.permutation(key, values)[: self.subset_size]
        return super().combine(values, key)

    def policy_q(self, values: jax.Array, key: jax.Array) -> jax.Array:
        """The estimate that the policy climbs, from those of the value networks."""
        return self.combine(values, key) if self.policy_estimate == "as_targets" else values.mean(0)

    def draw_dropout(self, key: jax.Array) -> Dropout | None:
        """Which units to leave out."""
        return None if self.dropout is None else Dropout(self.dropout, key)

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        next_value = soft_next_values(
            learner.policy,
            learner.targets["value"],
            partial(self.combine, key=jax.random.fold_in(key, 1)),
            batch,
            noise,
            temperature(learner),
            self.draw_dropout(jax.random.fold_in(key, 2)),
        )
        return bootstrap(batch, self.discount_factor, next_value)

    def value_loss(
        self, values: Params, batch: Transition, target: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        dropout = self.draw_dropout(jax.random.fold_in(key, 3))
        loss, after = value_loss(values, batch, target, dropout)
        return 0.5 * loss, after

    def climbed_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        dropout = self.draw_dropout(jax.random.fold_in(key, 2))
        values = q_values(learner.value, observation, action, dropout)
        return self.policy_q(values, jax.random.fold_in(key, 1))
