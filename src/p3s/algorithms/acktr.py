"""ACKTR for continuous control (Wu et al. 2017): natural gradients by K-FAC, trust by KL.

    rollout       whole episodes until there are more than `rollout_steps` steps
    improve       A = GAE with the values so far
                  V fitted to discounted returns R: `value_steps` full-batch K-FAC steps on
                      ½ mean (V - R)²; Fisher of N(V, 1)
                  A standardised; one full-batch K-FAC step on -mean(A log pi(a|s));
                      Fisher from the slopes of log pi at the actions taken, which pi drew
                  KL(old ‖ new) above twice `target_kl`: step size / 1.5
                                below half of it:        step size * 1.5

The value network sees [observation, mean of the action, std of the action, t / 10, 1], t being
the step in the episode, and has ELU between its layers; the policy has tanh.

Differs from baselines (the parent of 0f4ae2f) in: the policy sees the observation alone, without
the one before it; where an episode is cut off, returns and advantages look ahead to the value of
the true final observation; no weight decay; layers start orthogonal; see also `kfac.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.on_policy import (
    OnPolicy,
    advantages,
    backwards_sum,
    entropy,
    init_dense,
    log_density,
    log_probability,
    policy_gaussian,
)
from p3s.algorithms.parts.kfac import KFAC, Trace, trace
from p3s.algorithms.parts.squashed_gaussian import Gaussian, gaussian_kl
from p3s.networks import Layers, apply_mlp
from p3s.types import EnvSpec, Learner, Metrics, Params, Rollout

SMALLEST_STEP, LARGEST_STEP = 1e-8, 1.0
STEP_FACTOR = 1.5


def step_in_episode(ended: jax.Array) -> jax.Array:
    """How many steps of the same episode came before each row."""
    rows = jnp.arange(len(ended))
    starts = jnp.concatenate([jnp.ones(1, bool), ended[:-1] > 0])
    return rows - jax.lax.cummax(jnp.where(starts, rows, 0))


def value_inputs(policy: Params, observation: jax.Array, step: jax.Array) -> jax.Array:
    """[observation, mean and std of the action, t / 10, 1], (rows, ...)."""
    mean, log_std = policy_gaussian(policy, observation)
    time = step[:, None].astype(jnp.float32) / 10.0
    return jnp.concatenate([observation, mean, jnp.exp(log_std), time, jnp.ones_like(time)], axis=1)


def value_of(value: Layers, inputs: jax.Array) -> jax.Array:
    """V for rows of value inputs."""
    return apply_mlp(value, inputs, "elu")[:, 0]


def value_loss(value: Layers, inputs: jax.Array, target: jax.Array, weights: jax.Array):
    """½ mean (V - R)²; weights: of each row, with sum 1."""
    return 0.5 * jnp.sum(weights * (value_of(value, inputs) - target) ** 2)


def policy_loss(policy: Params, rollout: Rollout, advantage: jax.Array, weights: jax.Array):
    """-mean(A log pi(a|s))."""
    log_p = log_probability(policy, rollout.steps.observation, rollout.steps.action)
    return -jnp.sum(weights * advantage * log_p)


def adapt_step(step_size: jax.Array, divergence: jax.Array, target: float) -> jax.Array:
    """A smaller step after too large a change of the policy, a larger one after too small."""
    factor = jnp.where(
        divergence > 2.0 * target,
        1.0 / STEP_FACTOR,
        jnp.where(divergence < 0.5 * target, STEP_FACTOR, 1.0),
    )
    return jnp.clip(step_size * factor, SMALLEST_STEP, LARGEST_STEP)


def policy_layers(policy: Params) -> Layers:
    """The policy as K-FAC sees it: its log std is the bias of a layer without inputs."""
    nothing = jnp.zeros((0, len(policy["log_std"])), jnp.float32)
    return [*policy["layers"], {"weight": nothing, "bias": policy["log_std"]}]


def policy_traces(policy: Params, observation: jax.Array, action: jax.Array) -> list[Trace]:
    """Inputs and slopes of log pi(a|s) at the actions, for all of `policy_layers`."""
    log_std = policy["log_std"]

    def log_likelihood(mean: jax.Array) -> jax.Array:
        return log_density(Gaussian(mean, jnp.broadcast_to(log_std, mean.shape)), action)

    mean, _ = policy_gaussian(policy, observation)
    spread_slopes = ((action - mean) * jnp.exp(-log_std)) ** 2 - 1.0
    return [
        *trace(policy["layers"], observation, "tanh", log_likelihood),
        Trace(observation[:, :0], spread_slopes),
    ]


@dataclass(frozen=True, kw_only=True)
class ACKTR(OnPolicy):
    """Actor-critic with natural gradients by K-FAC."""

    name: ClassVar[str] = "acktr"
    actions: ClassVar[Literal["continuous", "discrete", "both"]] = "continuous"

    rollout_steps: int = 2500
    """Whole episodes are collected until there are more environment steps than this."""
    trace_decay: float = 0.97
    """How far an advantage looks ahead (λ)."""
    momentum: float = 0.9
    """Of both optimisers."""
    target_kl: float = 0.002
    """Change of the policy in one update that the step size aims at."""
    initial_step_size: float = 0.03
    """The policy's step size at the start."""
    policy_clip_kl: float = 0.01
    """Bound of a policy step's length in the Fisher metric."""
    policy_damping: float = 0.01
    """Added to the Fisher eigenvalues of the policy."""
    policy_statistics_decay: float = 0.99
    """How slowly the policy's Fisher factors change."""
    value_steps: int = 25
    """Full-batch steps of the value network in an update."""
    value_learning_rate: float = 0.001
    """The value network's step size."""
    value_clip_kl: float = 0.3
    """Bound of a value step's length in the Fisher metric."""
    value_damping: float = 0.1
    """Added to the Fisher eigenvalues of the values."""
    value_statistics_decay: float = 0.95
    """How slowly the values' Fisher factors change."""
    value_cold_iterations: int = 50
    """First value steps that follow the plain gradient."""

    def problem(self) -> str | None:
        positive = (
            "target_kl", "initial_step_size", "policy_clip_kl", "policy_damping",
            "value_learning_rate", "value_clip_kl", "value_damping",
        )  # fmt: skip
        for field in positive:
            if getattr(self, field) <= 0:
                return f"{field} must be above 0, not {getattr(self, field)}"
        for field in ("momentum", "policy_statistics_decay", "value_statistics_decay"):
            if not 0 <= getattr(self, field) < 1:
                return f"{field} must be at least 0 and below 1, not {getattr(self, field)}"
        if self.value_steps < 1 or self.value_cold_iterations < 0:
            return (
                f"value_steps must be at least 1 and value_cold_iterations at least 0, "
                f"not {self.value_steps} and {self.value_cold_iterations}"
            )
        return super().problem()

    @property
    def policy_optimizer(self) -> KFAC:
        """K-FAC for the policy."""
        return KFAC(
            self.policy_clip_kl, self.policy_damping, self.policy_statistics_decay, self.momentum
        )

    @property
    def value_optimizer(self) -> KFAC:
        """K-FAC for the values."""
        return KFAC(
            self.value_clip_kl,
            self.value_damping,
            self.value_statistics_decay,
            self.momentum,
            self.value_cold_iterations,
        )

    def rollout_full(self, num_rows: int, episode_ended: bool) -> bool:
        return episode_ended and num_rows > self.rollout_steps

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        policy_key, value_key = jax.random.split(key)
        hidden = len(self.hidden_sizes)
        policy = self.init_policy(policy_key, spec, scale=1.0, last=0.1)
        sizes = [spec.observation_size + 2 * spec.action_size + 2, *self.hidden_sizes, 1]
        value = init_dense(value_key, sizes, [1.0] * (hidden + 1))
        extra = {
            "policy_optimizer": self.policy_optimizer.start(policy_layers(policy)),
            "value_optimizer": self.value_optimizer.start(value),
            "step_size": jnp.float32(self.initial_step_size),
        }
        return Learner(policy, value, extra)

    def improve(
        self, learner: Learner, rollout: Rollout, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        weights = rollout.present / rollout.present.sum()
        advantage, inputs, target = self.look_back(learner, rollout)
        value, value_state, losses = self._fit_value(learner, inputs, target, weights, key)
        centered = advantage - jnp.sum(weights * advantage)
        deviation = jnp.sqrt(jnp.sum(weights * centered**2))
        policy, policy_state, metrics = self._policy_step(
            learner, rollout, centered / (deviation + 1e-8), weights
        )
        extra = {
            "policy_optimizer": policy_state,
            "value_optimizer": value_state,
            "step_size": adapt_step(
                learner.extra["step_size"], metrics["divergence"], self.target_kl
            ),
        }
        metrics = {
            "value_loss": losses[0],
            "value_loss_after": losses[-1],
            **metrics,
            "step_size": extra["step_size"],
        }
        return Learner(policy, value, extra), metrics

    def look_back(
        self, learner: Learner, rollout: Rollout
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Advantages, the value network's inputs, and the returns that it is fitted to."""
        steps, ended = rollout.steps, rollout.ended
        time = step_in_episode(ended)
        inputs = value_inputs(learner.policy, steps.observation, time)
        ahead = value_inputs(learner.policy, steps.next_observation, time + 1)
        value, next_value = (value_of(learner.value, rows) for rows in (inputs, ahead))
        advantage = advantages(steps, ended, value, next_value, self.discount, self.trace_decay)
        cut_off = ended * steps.discount
        terms = steps.reward + self.discount * cut_off * next_value
        returns = backwards_sum(terms, self.discount * (1.0 - ended))
        return advantage, inputs, returns

    def _fit_value(self, learner: Learner, inputs, target, weights, key: jax.Array):
        """New value network, its optimiser's state, and the loss before each step."""

        def step(carry, step_key: jax.Array):
            value, state = carry
            loss, gradient = jax.value_and_grad(value_loss)(value, inputs, target, weights)
            # A return drawn from N(V, 1) lies this far from V, which is the likelihood's slope.
            noise = jax.random.normal(step_key, (len(target), 1), jnp.float32)
            traces = trace(value, inputs, "elu", lambda outputs: outputs * noise)
            return self.value_optimizer.step(
                value, gradient, traces, weights, state, self.value_learning_rate
            ), loss

        start = learner.value, learner.extra["value_optimizer"]
        (value, state), losses = jax.lax.scan(step, start, jax.random.split(key, self.value_steps))
        return value, state, losses

    def _policy_step(self, learner: Learner, rollout: Rollout, advantage, weights):
        """New policy, its optimiser's state, and metrics."""
        old, observation = learner.policy, rollout.steps.observation
        loss, gradient = jax.value_and_grad(policy_loss)(old, rollout, advantage, weights)
        layers, state = self.policy_optimizer.step(
            policy_layers(old),
            policy_layers(gradient),
            policy_traces(old, observation, rollout.steps.action),
            weights,
            learner.extra["policy_optimizer"],
            learner.extra["step_size"],
        )
        policy = {"layers": layers[:-1], "log_std": layers[-1]["bias"]}
        before, after = policy_gaussian(old, observation), policy_gaussian(policy, observation)
        metrics = {
            "policy_loss": loss,
            "divergence": jnp.sum(weights * gaussian_kl(before, after)),
            "entropy": jnp.sum(weights * entropy(after)),
        }
        return policy, state, metrics

    def state_value(self, learner: Learner, observation: jax.Array, step: jax.Array) -> jax.Array:
        return value_of(learner.value, value_inputs(learner.policy, observation, step))
