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

Differs from the text in the temperature's loss only, see `temperature.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import bootstrap, q_values, value_loss
from p3s.algorithms.squashed_gaussian import (
    GaussianActorCritic,
    gaussian,
    policy_loss,
    squashed_sample,
)
from p3s.algorithms.temperature import LearnedTemperature
from p3s.networks import follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


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
class SAC(GaussianActorCritic, LearnedTemperature):
    """Soft actor-critic with a learned temperature."""

    name: ClassVar[str] = "sac"

    target_entropy: float = -1.0
    """Entropy that the temperature aims at, per action dimension."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 3)
        policy, value = self.init_policy(keys[0], spec), self.init_q_networks(keys[1:], spec)
        extra = {
            "target_value": value,
            **self.start_temperature(),
            "policy_optimizer": self.start_optimizer(policy),
            "value_optimizer": self.start_optimizer(value),
        }
        return Learner(policy, value, extra)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        target = soft_td_target(
            learner.policy,
            extra["target_value"],
            batch,
            noise,
            jnp.exp(extra["log_temperature"]),
            self.discount,
        )
        loss, gradient = jax.value_and_grad(lambda value: 0.5 * value_loss(value, batch, target))(
            learner.value
        )
        value, state = self.descend(learner.value, gradient, extra["value_optimizer"])
        extra = {
            **extra,
            "value_optimizer": state,
            "target_value": follow(extra["target_value"], value, self.target_rate),
        }
        metrics = {"value_loss": loss, "target_mean": target.mean()}
        return Learner(learner.policy, value, extra), metrics

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        temperature = jnp.exp(extra["log_temperature"])
        (loss, (entropy, distance)), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            learner.policy,
            learner.value,
            batch.observation,
            jax.random.normal(key, batch.action.shape, jnp.float32),
            temperature,
            gaussian(guide.policy, batch.observation),
            guide.weight,
        )
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        target_entropy = self.target_entropy * batch.action.shape[-1]
        extra = {
            **extra,
            **self.adapt_temperature(extra, entropy, target_entropy),
            "policy_optimizer": state,
        }
        metrics = {
            "policy_loss": loss,
            "guide_distance": distance,
            "entropy": entropy,
            "temperature": temperature,
        }
        return Learner(policy, learner.value, extra), metrics
