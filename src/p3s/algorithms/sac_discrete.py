"""Discrete SAC (Christodoulou 2019): soft actor-critic with finitely many actions.

    value step    V'(s') = sum_a pi(a|s') (min_j Q'_j(s', a) - alpha log pi(a|s'))
                  y = r + discount * gamma * V'(s');  minimize sum_j ½ mean (y - Q_j(s, a))²
                  targets <- (1 - tau) targets + tau online
    policy step   minimize mean sum_a pi(a|s) (alpha log pi(a|s) - min_j Q_j(s, a))
                           + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy)

Expectations over actions are exact sums, so nothing is drawn but the actions in the environment.
The noiseless policy takes the most probable action. Where the environment masks actions
(`envs/masked_observations.py`), forbidden ones have no probability.

Differs from the original in: targets follow softly, as in SAC, where that code copies them every
8000 updates; `target_entropy` is a smaller share of the largest entropy than its 0.98, which keeps
a policy close to random where rewards are dense; dense layers; the temperature's loss, see
`soft_actor_critic.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import Loss, bootstrap
from p3s.algorithms.parts.categorical import at_action, categorical_kl
from p3s.algorithms.parts.soft_actor_critic import SoftActorCritic, temperature
from p3s.envs.masked_observations import allowed_only, split_mask
from p3s.fields.types import Count, NonNegative
from p3s.networks import Model, apply_network, train_network
from p3s.types import EnvSpec, Guide, Learner, Params, Transition


def all_q_values(values: Params, observation: jax.Array) -> jax.Array:
    """Q_j(s, .) of stacked networks, (networks, batch, actions)."""
    seen, _ = split_mask(observation, values.shapes[0])
    return jax.vmap(apply_network, in_axes=(0, None))(values, seen)


def policy_logits(policy: Model, observation: jax.Array) -> jax.Array:
    """Logits of pi(.|s), (..., actions); forbidden actions have the lowest."""
    seen, mask = split_mask(observation, policy.shapes[0])
    return allowed_only(apply_network(policy, seen), mask)


def soft_state_value(
    logits: jax.Array, values: jax.Array, temperature: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """sum_a pi(a) (Q(a) - alpha log pi(a)), and the entropy of pi."""
    log_policy = jax.nn.log_softmax(logits)
    policy = jnp.exp(log_policy)
    entropy = -jnp.sum(policy * log_policy, axis=-1)
    return jnp.sum(policy * values, axis=-1) + temperature * entropy, entropy


def value_loss(
    values: Params, batch: Transition, target: jax.Array
) -> tuple[jax.Array, tuple[Params, None]]:
    """Sum over j of ½ mean (y - Q_j(s, a))²."""
    seen, _ = split_mask(batch.observation, values.shapes[0])
    outputs, after = jax.vmap(train_network, in_axes=(0, None))(values, seen)
    errors = jax.vmap(at_action, in_axes=(0, None))(outputs, batch.action) - target
    return 0.5 * jnp.sum(jnp.mean(errors**2, axis=1)), (after, None)


def policy_loss(
    policy: Model,
    values: jax.Array,
    observation: jax.Array,
    temperature: jax.Array,
    guide_logits: jax.Array,
    weight: jax.Array,
) -> tuple[jax.Array, tuple[Model, tuple[jax.Array, jax.Array]]]:
    """-mean soft value + weight KL, with mean entropy and mean KL; values: (batch, actions)."""
    seen, mask = split_mask(observation, policy.shapes[0])
    outputs, after = train_network(policy, seen)
    logits = allowed_only(outputs, mask)
    soft_value, entropy = soft_state_value(logits, values, temperature)
    distance = categorical_kl(logits, guide_logits).mean()
    return -soft_value.mean() + weight * distance, (after, (entropy.mean(), distance))


@dataclass(frozen=True, kw_only=True)
class SACDiscrete(SoftActorCritic):
    """Soft actor-critic for discrete actions, with a learned temperature."""

    name: ClassVar[str] = "sac_discrete"
    actions: ClassVar[Literal["continuous", "discrete"]] = "discrete"
    keeps_to_masks: ClassVar[bool] = True

    batch_size: Count = 256
    """Transitions in a minibatch (B)."""
    policy_period: Count = 1
    """Value updates per policy update."""
    target_entropy: NonNegative = 0.3
    """Entropy that the temperature aims at, as a share of the largest possible, log(actions); of
    masked actions, those that are allowed count."""

    def init_policy(self, key: jax.Array, spec: EnvSpec) -> Params:
        """Logits of all actions."""
        return self.for_policy.init_network(key, [spec.features], spec.action_size)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        logits = policy_logits(policy, observation)
        action = jax.random.categorical(key, logits) if explore else logits.argmax(axis=-1)
        return action.astype(jnp.int32)

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        next_value, _ = soft_state_value(
            policy_logits(learner.policy, batch.next_observation),
            self.combine(all_q_values(learner.targets["value"], batch.next_observation), key),
            temperature(learner),
        )
        return bootstrap(batch, self.discount_factor, next_value)

    def value_loss(
        self, values: Params, batch: Transition, target: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        return value_loss(values, batch, target)

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> Loss:
        return partial(
            policy_loss,
            values=self.combine(all_q_values(learner.value, batch.observation), key),
            observation=batch.observation,
            temperature=temperature(learner),
            guide_logits=policy_logits(guide.policy, batch.observation),
            weight=guide.weight,
        )

    def entropy_goal(self, learner: Learner, batch: Transition) -> jax.Array:
        seen, mask = split_mask(batch.observation, learner.policy.shapes[0])
        if mask is not None:
            return self.target_entropy * jnp.log(mask.sum(axis=-1)).mean()
        num_actions = jax.eval_shape(apply_network, learner.policy, seen).shape[-1]
        return self.target_entropy * jnp.log(float(num_actions))

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return categorical_kl(policy_logits(policy, observation), policy_logits(other, observation))

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return at_action(all_q_values(learner.value, observation).min(axis=0), action)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        return policy
