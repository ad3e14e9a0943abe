"""DQN, deep Q-learning for discrete actions (Mnih et al. 2015), double by default.

    update        a* = argmax_a Q(s', a)  (double)   or   argmax_a Q'(s', a)
                  y  = r + discount * gamma * Q'(s', a*)
                  minimize mean huber(y - Q(s, a)) + weight * KL(B ‖ B of the guide)
                  every `target_period` updates: Q' <- (1 - target_rate) Q' + target_rate Q

The Q network is both policy and value: it is the learner's `policy`, and all of the update is in
the policy step, so that the pull of the guide is one more term of the same loss. B is the
Boltzmann policy softmax(Q(s, .) / `boltzmann_temperature`), which only the distance uses; actions
are epsilon-greedy.

An action depends on the policy's parameters, observation and key only, so epsilon is carried with
the parameters: it falls linearly from `epsilon_start` to `epsilon_end` over `epsilon_updates`
updates. A copy of a policy explores as the original does; equal start and end give a constant
epsilon.

Where the environment masks actions (`masked_observations.py`), forbidden ones are taken neither
greedily nor at random, are never a*, and have no probability under B.

Differs from the original in: Adam; sizes and periods that suit small worlds, chosen
on CartPole-v1; errors are clipped at 10 instead of 1, since rewards are not clipped; double
Q-learning (van Hasselt et al. 2016); the dueling form (Wang et al. 2016) shares all hidden layers
between V and advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy, WithTargets, bootstrap
from p3s.algorithms.parts.categorical import at_action, categorical_kl
from p3s.envs.masked_observations import allowed_only, split_mask
from p3s.errors import UserError
from p3s.fields.layers import Layer
from p3s.fields.schedules import Rate
from p3s.fields.types import Count, Positive, Share, Sizes
from p3s.networks import Model, apply_network, part, train_network
from p3s.trees import Carried, follow_every
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def dueling_values(outputs: jax.Array) -> jax.Array:
    """Q = V + A - mean A from outputs (V, A), (..., 1 + actions) -> (..., actions)."""
    value, advantages = outputs[..., :1], outputs[..., 1:]
    return value + advantages - advantages.mean(axis=-1, keepdims=True)


def all_q_values(layers: Model, observation: jax.Array, dueling: bool) -> jax.Array:
    """Q(s, .), (..., actions); forbidden actions have the lowest."""
    seen, mask = split_mask(observation, layers.shapes[0])
    outputs = apply_network(layers, seen)
    return allowed_only(dueling_values(outputs) if dueling else outputs, mask)


def huber(error: jax.Array, threshold: float) -> jax.Array:
    """½ error² up to the threshold, then a line."""
    near = jnp.minimum(jnp.abs(error), threshold)
    return 0.5 * near**2 + threshold * (jnp.abs(error) - near)


def q_target(
    layers: Model,
    target_layers: Model,
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
    layers: Model,
    batch: Transition,
    target: jax.Array,
    guide_values: jax.Array,
    weight: jax.Array,
    algorithm: DQN,
) -> tuple[jax.Array, tuple[Model, jax.Array]]:
    """mean huber(y - Q(s, a)) + weight * KL, with the mean KL to the guide's Boltzmann policy."""
    seen, mask = split_mask(batch.observation, layers.shapes[0])
    outputs, after = train_network(layers, seen)
    values = allowed_only(dueling_values(outputs) if algorithm.dueling else outputs, mask)
    errors = at_action(values, batch.action) - target
    temperature = algorithm.boltzmann_temperature
    distance = categorical_kl(values / temperature, guide_values / temperature).mean()
    loss = huber(errors, algorithm.huber_threshold).mean() + weight * distance
    return loss, (after, distance)


@dataclass(frozen=True, kw_only=True)
class DQN(WithTargets):
    """Deep Q-learning."""

    name: ClassVar[str] = "dqn"
    actions: ClassVar[Literal["continuous", "discrete"]] = "discrete"
    has_own_policy: ClassVar[bool] = False
    keeps_to_masks: ClassVar[bool] = True
    presets: ClassVar[tuple[Layer, ...]] = (
        *OffPolicy.presets,
        # Several learners on one replay can lose what they had after hard copies: docs/algorithms
        Layer(
            "population", {"target_rate": 0.005, "target_period": 1}, lambda s: s.num_learners > 1
        ),
    )

    hidden_sizes: Sizes = (128, 128)
    """Widths of the hidden layers of the Q network."""
    learning_rate: Rate = 5e-4
    """Adam's step size."""
    batch_size: Count = 128
    """Transitions in a minibatch (B)."""
    policy_period: Count = 1
    """Must be 1: the Q network is the policy."""
    target_rate: Share = 1.0
    """How far targets move at a time: 1 copies (hard targets), less follows (soft, the presets'
    choice in a population)."""
    target_period: Count = 50
    """Updates between two moves of the targets."""
    double: bool = True
    """The online network chooses the next action and the target network values it."""
    dueling: bool = False
    """The network outputs V and advantages instead of Q."""
    huber_threshold: Positive = 10.0
    """Errors beyond this count linearly."""
    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """Share of random actions in the end."""
    epsilon_updates: Count = 2000
    """Updates from start to end."""
    boltzmann_temperature: Positive = 1.0
    """Temperature of the Boltzmann policies that the distance compares, in units of Q."""

    def problem(self) -> UserError | None:
        if self.policy_period != 1:
            message = f"policy_period of dqn must be 1, not {self.policy_period}: Q is the policy"
            return UserError(message, "policy_period")
        if self.epsilon_end > self.epsilon_start:
            return UserError(
                f"epsilon_end must be at most epsilon_start, {self.epsilon_start}, "
                f"not {self.epsilon_end}",
                "epsilon_end",
            )
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        outputs = spec.action_size + (1 if self.dueling else 0)
        layers = self.init_network(key, [spec.features], outputs)
        epsilon = Carried(jnp.asarray(self.epsilon_start, jnp.float32))
        return Learner(
            policy={"layers": layers, "epsilon": epsilon},
            value={},
            targets={"policy": layers},
            optimizers={"policy": self.start_optimizer(layers)},
            extra={"num_updates": jnp.int32(0)},
        )

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        values = all_q_values(policy["layers"], observation, self.dueling)
        action = values.argmax(axis=-1).astype(jnp.int32)
        if not explore:
            return action
        choice_key, action_key = jax.random.split(key)
        _, mask = split_mask(observation, policy["layers"].shapes[0])
        if mask is None:
            random = jax.random.randint(action_key, action.shape, 0, values.shape[-1], jnp.int32)
        else:
            equal = allowed_only(jnp.zeros_like(values), mask)
            random = jax.random.categorical(action_key, equal).astype(jnp.int32)
        chance = jax.random.uniform(choice_key, action.shape, jnp.float32)
        return jnp.where(chance < policy["epsilon"].value, random, action)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        # Nothing: there is one loss, it needs the guide, and so it is in the policy step.
        return learner, Metrics()

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        layers, targets = learner.policy["layers"], learner.targets["policy"]
        target = q_target(layers, targets, batch, self.discount_factor, self.double, self.dueling)
        loss_of = partial(
            q_loss,
            batch=batch,
            target=target,
            guide_values=all_q_values(guide.policy["layers"], batch.observation, self.dueling),
            weight=guide.weight,
            algorithm=self,
        )
        layers, state, loss, distance = self.minimize(loss_of, layers, learner.optimizers["policy"])
        count = learner.extra["num_updates"] + 1
        targets = follow_every(targets, layers, self.target_rate, count, self.target_period)
        fall = (self.epsilon_start - self.epsilon_end) / self.epsilon_updates
        epsilon = jnp.maximum(learner.policy["epsilon"].value - fall, self.epsilon_end)
        learner = learner._replace(
            policy={"layers": layers, "epsilon": Carried(epsilon)},
            targets={"policy": targets},
            optimizers={"policy": state},
            extra={**learner.extra, "num_updates": count},
        )
        return learner, Metrics(loss, target.mean(), distance, {"epsilon": epsilon})

    def with_start(self, learner: Learner, policy: Params) -> Learner:
        return learner._replace(policy=policy, targets={"policy": policy["layers"]})

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
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

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        # The best action has the largest advantage, whatever V is.
        return part(policy["layers"], outputs=slice(1, None)) if self.dueling else policy["layers"]
