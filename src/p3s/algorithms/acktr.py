"""ACKTR for continuous control (Wu et al. 2017): natural gradients by K-FAC, trust by KL.

    rollout       whole episodes until there are more than `rollout_steps` steps
    improve       A = GAE with the values so far
                  V fitted to discounted returns R: `value_steps` full-batch K-FAC steps on
                      ½ mean (V - R)²; Fisher of N(V, 1)
                  A standardized; one full-batch K-FAC step on -mean(A log pi(a|s));
                      Fisher from the slopes of log pi at the actions taken, which pi drew
                  KL(old ‖ new) above twice `target_kl`: step size / 1.5
                                below half of it:        step size * 1.5

An observation here is [the latest, the one before it], both normalized
(`num_stacked_observations`). The value network sees [observation, mean of the action, std of the
action, t / 10, 1], t being the step in the episode, and has ELU between its layers; the policy has
tanh.

Differs from baselines (the parent of 0f4ae2f) in: the first observation of an episode has itself
before it, where that code has zeros; where an episode is cut off, returns and advantages look ahead
to the value of the true final observation; no weight decay; layers start orthogonal; see also
`kfac.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

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
from p3s.algorithms.parts.kfac import KFAC, KFACState, Trace, trace
from p3s.algorithms.parts.squashed_gaussian import Gaussian, gaussian_kl
from p3s.fields.types import Bounds, Count, CountOrZero, Decay, Positive, Share
from p3s.networks import Layers, Model, apply_network, features
from p3s.types import EnvSpec, Learner, Params, Recorded, Rollout

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
    others = mean, jnp.exp(log_std), time, jnp.ones_like(time)
    return features(observation, *others, scale_images=policy["layers"].network.scale_images)


def value_of(value: Model, inputs: jax.Array) -> jax.Array:
    """V for rows of value inputs."""
    return apply_network(value, inputs)[:, 0]


def value_loss(value: Model, inputs: jax.Array, target: jax.Array, weights: jax.Array):
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
    return [*policy["layers"].params, {"weight": nothing, "bias": policy["log_std"]}]


def policy_traces(policy: Params, observation: jax.Array, action: jax.Array) -> list[Trace]:
    """Inputs and slopes of log pi(a|s) at the actions, for all of `policy_layers`."""
    log_std = policy["log_std"]

    def log_likelihood(mean: jax.Array) -> jax.Array:
        return log_density(Gaussian(mean, jnp.broadcast_to(log_std, mean.shape)), action)

    mean, _ = policy_gaussian(policy, observation)
    spread_slopes = ((action - mean) * jnp.exp(-log_std)) ** 2 - 1.0
    return [
        *trace(policy["layers"].params, observation, "tanh", log_likelihood),
        Trace(observation[:, :0], spread_slopes),
    ]


@dataclass(frozen=True, kw_only=True)
class ACKTR(OnPolicy):
    """Actor-critic with natural gradients by K-FAC."""

    name: ClassVar[str] = "acktr"
    actions: ClassVar[Literal["continuous", "discrete", "both"]] = "continuous"
    num_stacked_observations: ClassVar[int] = 2

    rollout_steps: Annotated[int, Bounds(least=2)] = 2500
    """Whole episodes are collected until there are more environment steps than this."""
    trace_decay: Share = 0.97
    """How far an advantage looks ahead (λ)."""
    momentum: Decay = 0.9
    """Momentum of both optimizers."""
    target_kl: Positive = 0.002
    """Change of the policy in one update that the step size aims at."""
    initial_step_size: Positive = 0.03
    """The policy's step size at the start."""
    policy_clip_kl: Positive = 0.01
    """Bound of a policy step's length in the Fisher metric."""
    policy_damping: Positive = 0.01
    """Added to the Fisher eigenvalues of the policy."""
    policy_statistics_decay: Decay = 0.99
    """How slowly the policy's Fisher factors change."""
    value_steps: Count = 25
    """Full-batch steps of the value network in an update."""
    value_learning_rate: Positive = 0.001
    """The value network's step size."""
    value_clip_kl: Positive = 0.3
    """Bound of a value step's length in the Fisher metric."""
    value_damping: Positive = 0.1
    """Added to the Fisher eigenvalues of the values."""
    value_statistics_decay: Decay = 0.95
    """How slowly the values' Fisher factors change."""
    value_cold_iterations: CountOrZero = 50
    """First value steps that follow the plain gradient."""

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
        value = init_dense(value_key, sizes, [1.0] * (hidden + 1), "elu", self.scale_images)
        optimizers = {
            "policy": self.policy_optimizer.start(policy_layers(policy)),
            "value": self.value_optimizer.start(value.params),
        }
        extra = {"step_size": jnp.float32(self.initial_step_size)}
        return Learner(policy, value, {}, optimizers, extra)

    def improve(
        self, learner: Learner, rollout: Rollout, key: jax.Array
    ) -> tuple[Learner, Recorded]:
        weights = rollout.present / rollout.present.sum()
        advantage, inputs, target = self.look_back(learner, rollout)
        value, value_state, losses = self._fit_value(learner, inputs, target, weights, key)
        centered = advantage - jnp.sum(weights * advantage)
        deviation = jnp.sqrt(jnp.sum(weights * centered**2))
        policy, policy_state, metrics = self._policy_step(
            learner, rollout, centered / (deviation + 1e-8), weights
        )
        optimizers = {"policy": policy_state, "value": value_state}
        step_size = adapt_step(learner.extra["step_size"], metrics["divergence"], self.target_kl)
        metrics = {
            "value_loss": losses[0],
            "value_loss_after": losses[-1],
            **metrics,
            "step_size": step_size,
        }
        learner = learner._replace(
            policy=policy,
            value=value,
            optimizers=optimizers,
            extra={**learner.extra, "step_size": step_size},
        )
        return learner, metrics

    def look_back(
        self, learner: Learner, rollout: Rollout
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Advantages, the value network's inputs, and the returns that it is fitted to."""
        steps, ended = rollout.steps, rollout.ended
        time = step_in_episode(ended)
        inputs = value_inputs(learner.policy, steps.observation, time)
        ahead = value_inputs(learner.policy, steps.next_observation, time + 1)
        value, next_value = (value_of(learner.value, rows) for rows in (inputs, ahead))
        advantage = advantages(
            steps, ended, value, next_value, self.discount_factor, self.trace_decay
        )
        cut_off = ended * steps.discount
        terms = steps.reward + self.discount_factor * cut_off * next_value
        returns = backwards_sum(terms, self.discount_factor * (1.0 - ended))
        return advantage, inputs, returns

    def _fit_value(
        self,
        learner: Learner,
        inputs: jax.Array,
        target: jax.Array,
        weights: jax.Array,
        key: jax.Array,
    ) -> tuple[Model, KFACState, jax.Array]:
        """New value network, its optimizer's state, and the loss before each step."""

        def step(carry: tuple[Model, KFACState], step_key: jax.Array) -> Any:
            value, state = carry
            loss, gradient = jax.value_and_grad(value_loss)(value, inputs, target, weights)
            # A return drawn from N(V, 1) lies this far from V, which is the likelihood's slope.
            noise = jax.random.normal(step_key, (len(target), 1), jnp.float32)
            traces = trace(value.params, inputs, "elu", lambda outputs: outputs * noise)
            layers, state = self.value_optimizer.step(
                value.params, gradient.params, traces, weights, state, self.value_learning_rate
            )
            return (replace(value, params=layers), state), loss

        start = learner.value, learner.optimizers["value"]
        (value, state), losses = jax.lax.scan(step, start, jax.random.split(key, self.value_steps))
        return value, state, losses

    def _policy_step(
        self, learner: Learner, rollout: Rollout, advantage: jax.Array, weights: jax.Array
    ) -> tuple[Params, KFACState, Recorded]:
        """New policy, its optimizer's state, and metrics."""
        old, observation = learner.policy, rollout.steps.observation
        loss, gradient = jax.value_and_grad(policy_loss)(old, rollout, advantage, weights)
        layers, state = self.policy_optimizer.step(
            policy_layers(old),
            policy_layers(gradient),
            policy_traces(old, observation, rollout.steps.action),
            weights,
            learner.optimizers["policy"],
            learner.extra["step_size"],
        )
        network = replace(old["layers"], params=layers[:-1])
        policy = {"layers": network, "log_std": layers[-1]["bias"]}
        before, after = policy_gaussian(old, observation), policy_gaussian(policy, observation)
        metrics = {
            "policy_loss": loss,
            "divergence": jnp.sum(weights * gaussian_kl(before, after)),
            "entropy": jnp.sum(weights * entropy(after)),
        }
        return policy, state, metrics

    def state_value(self, learner: Learner, observation: jax.Array, step: jax.Array) -> jax.Array:
        return value_of(learner.value, value_inputs(learner.policy, observation, step))
