"""Discrete SAC (Christodoulou 2019): soft actor-critic with finitely many actions.

    value step    V'(s') = sum_a pi(a|s') (min_j Q'_j(s', a) - alpha log pi(a|s'))
                  y = r + discount * gamma * V'(s');  minimise sum_j ½ mean (y - Q_j(s, a))²
                  targets <- (1 - tau) targets + tau online
    policy step   minimise mean sum_a pi(a|s) (alpha log pi(a|s) - min_j Q_j(s, a))
                           + weight * KL(pi ‖ guide)
                  minimise log alpha * (entropy of pi - target entropy)

Expectations over actions are exact sums, so nothing is drawn but the actions in the environment.
The noiseless policy takes the most probable action.

Differs from the original in: targets follow softly, as in SAC, where that code copies them every
8000 updates; `target_entropy` is a smaller share of the largest entropy than its 0.98, which keeps
a policy close to random where rewards are dense; dense layers; the temperature's loss, see
`temperature.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.categorical import at_action, categorical_kl
from p3s.algorithms.off_policy import bootstrap
from p3s.algorithms.temperature import LearnedTemperature
from p3s.networks import Layers, apply_mlp, follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def all_q_values(values: Params, observation: jax.Array) -> jax.Array:
    """Q_j(s, .) of stacked networks, (networks, batch, actions)."""
    return jax.vmap(apply_mlp, in_axes=(0, None))(values, observation)


def soft_state_value(
    logits: jax.Array, values: jax.Array, temperature: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """sum_a pi(a) (Q(a) - alpha log pi(a)), and the entropy of pi."""
    log_policy = jax.nn.log_softmax(logits)
    policy = jnp.exp(log_policy)
    entropy = -jnp.sum(policy * log_policy, axis=-1)
    return jnp.sum(policy * values, axis=-1) + temperature * entropy, entropy


def value_loss(values: Params, batch: Transition, target: jax.Array) -> jax.Array:
    """Sum over j of ½ mean (y - Q_j(s, a))²."""
    outputs = all_q_values(values, batch.observation)
    errors = jax.vmap(at_action, in_axes=(0, None))(outputs, batch.action) - target
    return 0.5 * jnp.sum(jnp.mean(errors**2, axis=1))


def policy_loss(
    policy: Params,
    values: jax.Array,
    observation: jax.Array,
    temperature: jax.Array,
    guide_logits: jax.Array,
    weight: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """-mean soft value + weight KL, with mean entropy and mean KL; values: (batch, actions)."""
    logits = apply_mlp(policy, observation)
    soft_value, entropy = soft_state_value(logits, values, temperature)
    distance = categorical_kl(logits, guide_logits).mean()
    return -soft_value.mean() + weight * distance, (entropy.mean(), distance)


@dataclass(frozen=True, kw_only=True)
class SACDiscrete(LearnedTemperature):
    """Soft actor-critic for discrete actions, with a learned temperature."""

    name: ClassVar[str] = "sac_discrete"
    actions: ClassVar[Literal["continuous", "discrete"]] = "discrete"

    batch_size: int = 256
    """Transitions in a minibatch (B)."""
    policy_period: int = 1
    """Value updates per policy update."""
    target_entropy: float = 0.3
    """Entropy that the temperature aims at, as a share of the largest possible, log(actions)."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 3)
        policy = self.init_network(keys[0], [spec.observation_size], spec.action_size)
        value = self.init_q_networks(keys[1:], spec)
        extra = {
            "target_value": value,
            **self.start_temperature(),
            "policy_optimizer": self.start_optimizer(policy),
            "value_optimizer": self.start_optimizer(value),
        }
        return Learner(policy, value, extra)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        logits = apply_mlp(policy, observation)
        action = jax.random.categorical(key, logits) if explore else logits.argmax(axis=-1)
        return action.astype(jnp.int32)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        next_values = all_q_values(extra["target_value"], batch.next_observation).min(axis=0)
        soft_value, _ = soft_state_value(
            apply_mlp(learner.policy, batch.next_observation),
            next_values,
            jnp.exp(extra["log_temperature"]),
        )
        target = bootstrap(batch, self.discount, soft_value)
        loss, gradient = jax.value_and_grad(value_loss)(learner.value, batch, target)
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
        values = all_q_values(learner.value, batch.observation).min(axis=0)
        (loss, (entropy, distance)), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            learner.policy,
            values,
            batch.observation,
            temperature,
            apply_mlp(guide.policy, batch.observation),
            guide.weight,
        )
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        target_entropy = self.target_entropy * jnp.log(float(values.shape[-1]))
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

    def distance(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return categorical_kl(apply_mlp(policy, observation), apply_mlp(other, observation))

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return at_action(all_q_values(learner.value, observation).min(axis=0), action)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Layers:
        return policy
