"""PPO, proximal policy optimization (Schulman et al. 2017), as baselines' ppo2 has it.

    rollout       `rollout_steps` steps
    improve       r <- r / std of the running discounted return
                  A = GAE,  target = A + V(s)
                  `epochs` times, for every minibatch of a new random order:
                      ratio = pi(a|s) / pi_old(a|s),  A standardized over the minibatch
                      minimize  mean max(-A ratio, -A clip(ratio, 1 ± clip_range))
                                - entropy_weight * entropy
                                + value_weight * ½ mean max((V - target)², (V_clipped - target)²)
                      where V_clipped = V_old + clip(V - V_old, ± clip_range)

One Adam (ε 1e-5) serves policy and values; the norm of their common gradient is limited. The
reward scale is carried with the policy, as `reward_std`; no action depends on it.

Differs from ppo2 in: a truncation looks ahead to the value of the true final observation, where
ppo2 takes it for a termination; no annealing of learning rate and clip range; discrete actions
have the same networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from p3s.algorithms.on_policy import (
    OnPolicy,
    advantages,
    init_dense,
    log_probability,
    policy_entropy,
)
from p3s.algorithms.parts.rates import scheduled
from p3s.errors import UserError
from p3s.fields.schedules import Rate
from p3s.fields.types import Count, NonNegative, Positive
from p3s.networks import Model, apply_network
from p3s.trees import Carried, merge, pick, trained
from p3s.types import EnvSpec, Learner, Params, Recorded, Rollout

HIGHEST_REWARD = 10.0
"""Scaled rewards are clipped to ± this."""
ADAM_EPSILON = 1e-5


class Samples(NamedTuple):
    """What the loss needs to know of a rollout's steps, (batch, ...)."""

    observation: jax.Array
    action: jax.Array
    log_probability: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array


def value_of(value: Model, observation: jax.Array) -> jax.Array:
    """V(s)."""
    return apply_network(value, observation)[..., 0]


def clipped_policy_loss(ratio: jax.Array, advantage: jax.Array, clip_range: float) -> jax.Array:
    """mean max(-A ratio, -A clip(ratio, 1 ± clip_range)) (Schulman et al. 2017, eq. 7)."""
    clipped = jnp.clip(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return jnp.maximum(-advantage * ratio, -advantage * clipped).mean()


def clipped_value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip_range: float
) -> jax.Array:
    """½ mean max((V - target)², (V_clipped - target)²)."""
    clipped = old_value + jnp.clip(value - old_value, -clip_range, clip_range)
    return 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2).mean()


def total_loss(
    params: tuple[Params, Model], samples: Samples, algorithm: PPO
) -> tuple[jax.Array, Recorded]:
    """The loss of policy and values together, and its parts."""
    policy, value = params
    advantage = samples.advantage - samples.advantage.mean()
    advantage = advantage / (samples.advantage.std() + 1e-8)
    log_ratio = log_probability(policy, samples.observation, samples.action)
    log_ratio = log_ratio - samples.log_probability
    ratio = jnp.exp(log_ratio)
    policy_loss = clipped_policy_loss(ratio, advantage, algorithm.clip_range)
    value_loss = clipped_value_loss(
        value_of(value, samples.observation), samples.value, samples.target, algorithm.clip_range
    )
    entropy = policy_entropy(policy, samples.observation).mean()
    loss = policy_loss - algorithm.entropy_weight * entropy + algorithm.value_weight * value_loss
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "divergence": jnp.mean(ratio - 1.0 - log_ratio),
        "clipped_share": jnp.mean(jnp.abs(ratio - 1.0) > algorithm.clip_range),
    }
    return loss, metrics


class ReturnMoments(NamedTuple):
    """The discounted return in progress, and the moments of all such so far."""

    running: jax.Array
    num_seen: jax.Array
    mean: jax.Array
    squares: jax.Array
    """Sum of squared differences from the mean."""

    @property
    def std(self) -> jax.Array:
        """Of the discounted returns so far; of none or one, 1."""
        variance = self.squares / jnp.maximum(self.num_seen, 1.0)
        return jnp.where(self.num_seen > 1.0, jnp.sqrt(variance + 1e-8), 1.0)


def scale_rewards(
    moments: ReturnMoments, reward: jax.Array, ended: jax.Array, discount_factor: float
) -> tuple[ReturnMoments, jax.Array]:
    """Each reward over the std of the discounted return up to its own step, clipped; in order."""

    def step(moments: ReturnMoments, row: tuple[jax.Array, jax.Array]):
        reward, ended = row
        running = moments.running * discount_factor + reward
        count = moments.num_seen + 1.0
        ahead = running - moments.mean
        mean = moments.mean + ahead / count
        squares = moments.squares + ahead * (running - mean)
        moments = ReturnMoments(running * (1.0 - ended), count, mean, squares)
        return moments, jnp.clip(reward / moments.std, -HIGHEST_REWARD, HIGHEST_REWARD)

    return jax.lax.scan(step, moments, (reward, ended))


@dataclass(frozen=True, kw_only=True)
class PPO(OnPolicy):
    """Proximal policy optimization."""

    name: ClassVar[str] = "ppo"

    minibatch_size: Count = 64
    """Steps in a minibatch; divides rollout_steps."""
    epochs: Count = 10
    """Times that a rollout is gone through."""
    learning_rate: Rate = 3e-4
    """Adam's step size, policy and values, or a schedule of it: linear(3e-4, 1e-5)."""
    learning_rate_steps: Count | None = None
    """Minibatches from the start to the end of a step size that changes; None: those of the run, by
    its `steps`. Outside of a run it stays as it is."""
    clip_range: Positive = 0.2
    """How far the probability ratio counts, either way of 1; how far a value may move."""
    entropy_weight: NonNegative = 0.0
    """Of the entropy in the loss."""
    value_weight: NonNegative = 0.5
    """Of the value loss in the loss."""
    gradient_norm: Positive = 0.5
    """The gradient is scaled down to this norm."""
    normalize_rewards: bool = True
    """Divide rewards by the standard deviation of the running discounted return."""

    def problem(self) -> UserError | None:
        if self.rollout_steps % self.minibatch_size != 0:
            return UserError(
                f"rollout_steps must be a multiple of minibatch_size, "
                f"not {self.rollout_steps} with {self.minibatch_size}",
                "rollout_steps",
            )
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        policy_key, value_key = jax.random.split(key)
        gain = float(np.sqrt(2))
        policy = self.init_policy(policy_key, spec, scale=gain, last=0.01)
        if self.normalize_rewards:
            policy["reward_std"] = Carried(jnp.float32(1.0))
        sizes = [spec.observation_size, *self.hidden_sizes, 1]
        scales = [gain] * len(self.hidden_sizes) + [1.0]
        value = init_dense(value_key, sizes, scales, "tanh", self.scale_images)
        optimizers = {"policy_and_value": self._optimizer().init(trained((policy, value)))}
        extra = {"returns": ReturnMoments(*jnp.zeros(4, jnp.float32))}
        return Learner(policy, value, {}, optimizers, extra)

    def for_run(self, num_updates: int) -> Self:
        # Without a replay a run has as many "updates" as steps.
        if self.learning_rate_steps is not None or not isinstance(self.learning_rate, str):
            return self
        minibatches = num_updates * self.epochs // self.minibatch_size
        return replace(self, learning_rate_steps=max(minibatches, 1))

    @property
    def step_size(self) -> optax.ScalarOrSchedule:
        """Adam's step size, or a function that gives it from the number of its steps so far."""
        if not isinstance(self.learning_rate, str):
            return self.learning_rate
        return scheduled(self.learning_rate, self.learning_rate_steps)

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.gradient_norm),
            optax.adam(self.step_size, eps=ADAM_EPSILON),
        )

    def improve(
        self, learner: Learner, rollout: Rollout, key: jax.Array
    ) -> tuple[Learner, Recorded]:
        samples, returns = self._samples(learner, rollout)
        optimizer = self._optimizer()
        before = (learner.policy, learner.value)

        def minibatch(carry: Any, rows: jax.Array) -> tuple[Any, Recorded]:
            params, state = carry
            chosen = pick(samples, rows)

            def loss_of(part: Params) -> tuple[jax.Array, Recorded]:
                return total_loss(merge(part, before), chosen, self)

            gradient, metrics = jax.grad(loss_of, has_aux=True)(params)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), metrics

        def epoch(carry: Any, epoch_key: jax.Array) -> tuple[Any, Recorded]:
            order = jax.random.permutation(epoch_key, len(samples.value))
            return jax.lax.scan(minibatch, carry, order.reshape(-1, self.minibatch_size))

        start = trained(before), learner.optimizers["policy_and_value"]
        epoch_keys = jax.random.split(key, self.epochs)
        (part, state), metrics = jax.lax.scan(epoch, start, epoch_keys)
        metrics = {name: values.mean() for name, values in metrics.items()}
        policy, value = merge(part, before)
        if self.normalize_rewards:
            metrics["reward_std"] = returns.std
            policy = {**policy, "reward_std": Carried(returns.std)}
        learner = learner._replace(
            policy=policy,
            value=value,
            optimizers={"policy_and_value": state},
            extra={**learner.extra, "returns": returns},
        )
        return learner, metrics

    def _samples(self, learner: Learner, rollout: Rollout) -> tuple[Samples, ReturnMoments]:
        """Advantages and targets under the policy and the values that collected the rollout."""
        steps, ended = rollout.steps, rollout.ended
        returns = learner.extra["returns"]
        if self.normalize_rewards:
            returns, reward = scale_rewards(returns, steps.reward, ended, self.discount_factor)
            steps = steps._replace(reward=reward)
        value = value_of(learner.value, steps.observation)
        next_value = value_of(learner.value, steps.next_observation)
        advantage = advantages(
            steps, ended, value, next_value, self.discount_factor, self.trace_decay
        )
        log_p = log_probability(learner.policy, steps.observation, steps.action)
        samples = Samples(
            steps.observation, steps.action, log_p, value, advantage, advantage + value
        )
        return samples, returns

    def state_value(self, learner: Learner, observation: jax.Array, step: jax.Array) -> jax.Array:
        return value_of(learner.value, observation)
