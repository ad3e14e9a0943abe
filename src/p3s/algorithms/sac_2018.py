"""SAC in its first form, the paper's baseline: V network, fixed temperature, reward scale.

    value step    minimize sum_j ½ mean (scale * r + discount * gamma * V'(s') - Q_j(s, a))²
                  a~ ~ pi(s);  minimize ½ mean (min_j Q_j(s, a~) - alpha log pi(a~|s) - V(s))²
                  V' <- (1 - tau) V' + tau V
    policy step   a ~ pi(s);  minimize mean(alpha log pi(a|s) - Q_1(s, a)) + weight * KL(pi ‖ guide)

Haarnoja et al. 2018, "Off-Policy Maximum Entropy Deep Reinforcement Learning with a Stochastic
Actor"; only the ratio of reward scale and temperature matters. `sac.py` is the form of today.

Differs from the original code (commit 8258e33) in: the policy and V draw separate actions. When it
learns and acts randomly, its initial weights and its reward scale of 25 for Swimmer are in the
presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import (
    WithTargets,
    bootstrap,
    initial_steps,
    q_value,
    q_values,
    value_loss,
)
from p3s.algorithms.parts.squashed_gaussian import (
    GaussianActorCritic,
    gaussian,
    squashed_sample,
)
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import NonNegative, Positive
from p3s.networks import Model, apply_network, train_network
from p3s.trees import follow, pick
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def state_value(value: Model, observation: jax.Array) -> jax.Array:
    """V(s)."""
    return apply_network(value, observation)[..., 0]


def state_value_loss(
    value: Model, observation: jax.Array, target: jax.Array
) -> tuple[jax.Array, Model]:
    """½ mean (target - V(s))²."""
    outputs, after = train_network(value, observation)
    return 0.5 * jnp.mean((outputs[..., 0] - target) ** 2), after


CODE = {
    "initial_steps": lambda setting: setting.own_steps(1000),
    "random_steps": initial_steps,
    "initialization": "xavier",
    "reward_scale": by_family({"Swimmer": 25.0}),
}
"""Of the authors (8258e33); it acts randomly for as long as TD3's."""


@dataclass(frozen=True, kw_only=True)
class SAC2018(GaussianActorCritic, WithTargets):
    """Soft actor-critic with a V network and a fixed temperature."""

    name: ClassVar[str] = "sac_2018"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", CODE),)

    temperature: NonNegative = 1.0
    """Weight of the entropy (α)."""
    reward_scale: Positive = 5.0
    """Rewards are multiplied by this before anything is learned from them."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 4)
        policy = self.init_policy(keys[0], spec)
        value = {
            "q": self.init_q_networks(keys[1:3], spec),
            "v": self.init_network(keys[3], [spec.features], 1),
        }
        optimizers = {"policy": self.start_optimizer(policy), "value": self.start_optimizer(value)}
        return Learner(policy, value, {"value": value["v"]}, optimizers, {})

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        scaled = batch._replace(reward=self.reward_scale * batch.reward)
        next_value = state_value(learner.targets["value"], batch.next_observation)
        target = bootstrap(scaled, self.discount_factor, next_value)
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        action, log_density = squashed_sample(gaussian(learner.policy, batch.observation), noise)
        estimates = q_values(learner.value["q"], batch.observation, action)
        soft_value = (
            self.combine(estimates, jax.random.fold_in(key, 1)) - self.temperature * log_density
        )

        def loss_of(value: Params) -> tuple[jax.Array, tuple[Params, None]]:
            state_loss, v = state_value_loss(value["v"], batch.observation, soft_value)
            loss, (q, _) = value_loss(value["q"], batch, target)
            return 0.5 * loss + state_loss, ({"q": q, "v": v}, None)

        value, state, loss, _ = self.minimize(loss_of, learner.value, learner.optimizers["value"])
        learner = learner._replace(
            value=value,
            targets={"value": follow(learner.targets["value"], value["v"], self.target_rate)},
            optimizers={**learner.optimizers, "value": state},
        )
        return learner, Metrics(loss, target_mean=target.mean())

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        loss_of = self.policy_loss(learner, batch, guide, key)
        policy, state, loss, (entropy, distance) = self.minimize_policy(loss_of, learner, guide)
        optimizers = {**learner.optimizers, "policy": state}
        metrics = Metrics(loss, guide_distance=distance, more={"entropy": entropy})
        return learner._replace(policy=policy, optimizers=optimizers), metrics

    def q_networks(self, learner: Learner) -> Params:
        return learner.value["q"]

    def entropy_weight(self, learner: Learner) -> float:
        return self.temperature

    def climbed_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        return q_value(pick(learner.value["q"], 0), observation, action)
