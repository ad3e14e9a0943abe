"""DQN, deep Q-learning for discrete actions (Mnih et al. 2015), double by default.

    update        a* = argmax_a Q(s', a)  (double)   or   argmax_a Q'(s', a)
                  y  = r + discount * gamma * Q'(s', a*)
                  minimise mean huber(y - Q(s, a)) + weight * KL(B ‖ B of the guide)
                  every `target_period` updates: Q' <- (1 - target_rate) Q' + target_rate Q

The Q network is both policy and value: it is the learner's `policy`, and all of the update is in
the policy step, so that the pull of the guide is one more term of the same loss. B is the
Boltzmann policy softmax(Q(s, .) / `boltzmann_temperature`), which only the distance knows; actions
are epsilon-greedy.

An action depends on the policy's parameters, observation and key only, so epsilon travels with the
parameters: `policy["epsilon"]` falls in a line from `epsilon_start` to `epsilon_end` over
`epsilon_updates` updates. A copy of a policy explores as the original does; equal start and end
give a constant epsilon.

Differs from the original in: dense layers; Adam; sizes and periods that suit small worlds, chosen
on CartPole-v1; errors are clipped at 10 instead of 1, since rewards are not clipped; double
Q-learning (van Hasselt et al. 2016); the dueling form (Wang et al. 2016) shares all hidden layers
between V and advantages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy, bootstrap
from p3s.algorithms.parts.categorical import at_action, categorical_kl
from p3s.networks import apply_network, follow_every, part
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def all_q_values(layers: Params, observation: jax.Array, dueling: bool) -> jax.Array:
    """Q(s, .), (..., actions); dueling: V + A - mean A, V being the first output."""
    outputs = apply_network(layers, observation)
    if not dueling:
        return outputs
    value, advantages = outputs[..., :1], outputs[..., 1:]
    return value + advantages - advantages.mean(axis=-1, keepdims=True)


def huber(error: jax.Array, threshold: float) -> jax.Array:
    """½ error² up to the threshold, then a line."""
    near = jnp.minimum(jnp.abs(error), threshold)
    return 0.5 * near**2 + threshold * (jnp.abs(error) - near)


def q_target(
    layers: Params,
    target_layers: Params,
    batch: Transition,
    discount_factor: float,
    double: bool,
    dueling: bool,
) -> jax.Array:
    """y = r + discount * gamma * Q'(s', a*)."""
    target_values = all_q_values(target_layers, batch.next_observation, dueling)
    if not double:
        return bootstrap(batch, discount_factor, target_values.max(axis=-1))
    greedy = all_q_values(layers, batch.next_observation, dueling).argmax(axis=-1)
    return bootstrap(batch, discount_factor, at_action(target_values, greedy))


def q_loss(
    layers: Params,
    batch: Transition,
    target: jax.Array,
    guide_values: jax.Array,
    weight: jax.Array,
    algorithm: DQN,
) -> tuple[jax.Array, jax.Array]:
    """mean huber(y - Q(s, a)) + weight * KL, and the mean KL to the guide's Boltzmann policy."""
    values = all_q_values(layers, batch.observation, algorithm.dueling)
    errors = at_action(values, batch.action) - target
    temperature = algorithm.boltzmann_temperature
    distance = categorical_kl(values / temperature, guide_values / temperature).mean()
    return huber(errors, algorithm.huber_threshold).mean() + weight * distance, distance


@dataclass(frozen=True, kw_only=True)
class DQN(OffPolicy):
    """Deep Q-learning."""

    name: ClassVar[str] = "dqn"
    actions: ClassVar[Literal["continuous", "discrete"]] = "discrete"
    has_own_policy: ClassVar[bool] = False

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of the Q network."""
    learning_rate: float = 5e-4
    """Adam's step size."""
    batch_size: int = 128
    """Transitions in a minibatch (B)."""
    policy_period: int = 1
    """Must be 1: the Q network is the policy."""
    target_rate: float = 1.0
    """How far targets move at a time: 1 copies (hard targets), less follows (soft)."""
    target_period: int = 50
    """Updates between two moves of the targets."""
    double: bool = True
    """The online network chooses the next action and the target network values it."""
    dueling: bool = False
    """The network gives V and advantages instead of Q."""
    huber_threshold: float = 10.0
    """Errors beyond this count linearly."""
    epsilon_start: float = 1.0
    """Share of random actions at the start."""
    epsilon_end: float = 0.05
    """Share of random actions in the end."""
    epsilon_updates: int = 2000
    """Updates from start to end."""
    boltzmann_temperature: float = 1.0
    """Of the Boltzmann policies that the distance compares, in units of Q."""

    def problem(self) -> str | None:
        if self.policy_period != 1:
            return f"policy_period of dqn must be 1, not {self.policy_period}: Q is the policy"
        if not 0 <= self.epsilon_end <= self.epsilon_start <= 1:
            return "0 <= epsilon_end <= epsilon_start <= 1 must hold"
        if self.target_period < 1 or self.epsilon_updates < 1:
            return "target_period and epsilon_updates must be at least 1"
        for field in ("huber_threshold", "boltzmann_temperature"):
            if not 0 < getattr(self, field) < math.inf:
                return f"{field} must be above 0 and finite, not {getattr(self, field)}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        outputs = spec.action_size + (1 if self.dueling else 0)
        layers = self.init_network(key, [spec.observation_size], outputs)
        epsilon = jnp.asarray(self.epsilon_start, jnp.float32)
        extra = {
            "target_policy": layers,
            "num_updates": jnp.int32(0),
            "policy_optimizer": self.start_optimizer(layers),
        }
        return Learner({"layers": layers, "epsilon": epsilon}, {}, extra)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        values = all_q_values(policy["layers"], observation, self.dueling)
        action = values.argmax(axis=-1).astype(jnp.int32)
        if not explore:
            return action
        choice_key, action_key = jax.random.split(key)
        random = jax.random.randint(action_key, action.shape, 0, values.shape[-1], jnp.int32)
        draw = jax.random.uniform(choice_key, action.shape, jnp.float32)
        return jnp.where(draw < policy["epsilon"], random, action)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        # Nothing: the guide is needed for the one loss there is, see the policy step.
        return learner, {}

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        layers, extra = learner.policy["layers"], learner.extra
        target = q_target(
            layers, extra["target_policy"], batch, self.discount, self.double, self.dueling
        )
        guide_values = all_q_values(guide.policy["layers"], batch.observation, self.dueling)
        (loss, distance), gradient = jax.value_and_grad(q_loss, has_aux=True)(
            layers, batch, target, guide_values, guide.weight, self
        )
        layers, state = self.descend(layers, gradient, extra["policy_optimizer"])
        count = extra["num_updates"] + 1
        extra = {
            "target_policy": follow_every(
                extra["target_policy"], layers, self.target_rate, count, self.target_period
            ),
            "num_updates": count,
            "policy_optimizer": state,
        }
        fall = (self.epsilon_start - self.epsilon_end) / self.epsilon_updates
        epsilon = jnp.maximum(learner.policy["epsilon"] - fall, self.epsilon_end)
        metrics = {
            "value_loss": loss,
            "target_mean": target.mean(),
            "guide_distance": distance,
            "epsilon": epsilon,
        }
        return Learner({"layers": layers, "epsilon": epsilon}, {}, extra), metrics

    def distance(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        values, others = (
            all_q_values(params["layers"], observation, self.dueling) / self.boltzmann_temperature
            for params in (policy, other)
        )
        return categorical_kl(values, others)

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        values = all_q_values(learner.policy["layers"], observation, self.dueling)
        return at_action(values, action)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Params | None:
        # The best action has the largest advantage, whatever V is.
        return part(policy["layers"], outputs=slice(1, None)) if self.dueling else policy["layers"]
