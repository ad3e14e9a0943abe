"""SAC in its first form, the paper's baseline: V network, fixed temperature, reward scale.

    value step    minimise sum_j ½ mean (scale * r + discount * gamma * V'(s') - Q_j(s, a))²
                  a~ ~ pi(s);  minimise ½ mean (min_j Q_j(s, a~) - alpha log pi(a~|s) - V(s))²
                  V' <- (1 - tau) V' + tau V
    policy step   a ~ pi(s);  minimise mean(alpha log pi(a|s) - Q_1(s, a)) + weight * KL(pi ‖ guide)

Haarnoja et al. 2018, "Off-Policy Maximum Entropy Deep Reinforcement Learning with a Stochastic
Actor"; only the ratio of reward scale and temperature matters. `sac.py` is the form of today.

Differs from the original code (commit 8258e33) in: the policy and V draw separate actions. Its
reward scale of 25 for Swimmer is in the presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import bootstrap, q_values, value_loss
from p3s.algorithms.parts.squashed_gaussian import (
    GaussianActorCritic,
    gaussian,
    policy_loss,
    squashed_sample,
)
from p3s.networks import apply_network, follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def state_value(value: Params, observation: jax.Array) -> jax.Array:
    """V(s)."""
    return apply_network(value, observation)[..., 0]


def state_value_loss(value: Params, observation: jax.Array, target: jax.Array) -> jax.Array:
    """½ mean (target - V(s))²."""
    return 0.5 * jnp.mean((state_value(value, observation) - target) ** 2)


@dataclass(frozen=True, kw_only=True)
class SAC2018(GaussianActorCritic):
    """Soft actor-critic with a V network and a fixed temperature."""

    name: ClassVar[str] = "sac_2018"

    temperature: float = 1.0
    """Weight of the entropy (α)."""
    reward_scale: float = 5.0
    """Rewards are multiplied by this before anything is learned from them."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 4)
        policy = self.init_policy(keys[0], spec)
        value = {
            "q": self.init_q_networks(keys[1:3], spec),
            "v": self.init_network(keys[3], [spec.observation_size], 1),
        }
        extra = {
            "target_v": value["v"],
            "policy_optimizer": self.start_optimizer(policy),
            "value_optimizer": self.start_optimizer(value),
        }
        return Learner(policy, value, extra)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        scaled = batch._replace(reward=self.reward_scale * batch.reward)
        next_value = state_value(extra["target_v"], batch.next_observation)
        target = bootstrap(scaled, self.discount, next_value)
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        action, log_density = squashed_sample(gaussian(learner.policy, batch.observation), noise)
        smaller = q_values(learner.value["q"], batch.observation, action).min(axis=0)
        soft_value = smaller - self.temperature * log_density

        def loss_of(value: Params) -> jax.Array:
            state_loss = state_value_loss(value["v"], batch.observation, soft_value)
            return 0.5 * value_loss(value["q"], batch, target) + state_loss

        loss, gradient = jax.value_and_grad(loss_of)(learner.value)
        value, state = self.descend(learner.value, gradient, extra["value_optimizer"])
        extra = {
            **extra,
            "value_optimizer": state,
            "target_v": follow(extra["target_v"], value["v"], self.target_rate),
        }
        metrics = {"value_loss": loss, "target_mean": target.mean()}
        return Learner(learner.policy, value, extra), metrics

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        first_value = jax.tree.map(lambda pair: pair[:1], learner.value["q"])
        (loss, (entropy, distance)), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            learner.policy,
            first_value,
            batch.observation,
            jax.random.normal(key, batch.action.shape, jnp.float32),
            self.temperature,
            gaussian(guide.policy, batch.observation),
            guide.weight,
        )
        extra = learner.extra
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        metrics = {"policy_loss": loss, "guide_distance": distance, "entropy": entropy}
        extra = {**extra, "policy_optimizer": state}
        return Learner(policy, learner.value, extra), metrics

    def q_networks(self, learner: Learner) -> Params:
        return learner.value["q"]
