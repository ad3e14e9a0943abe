"""A deterministic policy with Q functions behind it: what TD3, DDPG and CrossQ-TD3 share.

value step    y = r + discount * gamma * min_j Q'_j(s', clip(pi'(s') + noise, -1, 1))
              minimize sum_j mean (y - Q_j(s, a))²
policy step   minimize mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))      (Appendix H)
              targets <- (1 - tau) targets + tau online
exploration   a = clip(pi(s) + x, -1, 1),  x = sigma * noise, or an Ornstein-Uhlenbeck process

An Ornstein-Uhlenbeck process is usually a state, x_t = (1 - theta) x_{t-1} + sigma noise_t, which
is set to zero at a reset. Here it is a sum over the noises of the last steps, drawn again from the
keys of those steps. So acting needs no state, and the process goes on over a reset.

    DeterministicPolicy        acting, the policy step, the distance; `crossq_td3` has it alone
    DeterministicActorCritic   with targets: `td3`, `ddpg`
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import (
    ActorCritic,
    WithTargets,
    bootstrap,
    q_value,
    q_values,
    value_loss,
)
from p3s.fields.schedules import Rate
from p3s.fields.types import Bounds, Critics, NonNegative, Sizes
from p3s.networks import Model, apply_network, train_network
from p3s.trees import follow, pick
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition

NOISE_MEMORY = 127
"""Earlier steps whose noise is summed up; at theta = 0.15 the first left out weighs 1e-9."""


def deterministic_action(policy: Model, observation: jax.Array) -> jax.Array:
    """pi(s), in [-1, 1]."""
    return jnp.tanh(apply_network(policy, observation))


def target_values(
    target_policy: Model, targets: Params, batch: Transition, target_noise: jax.Array
) -> jax.Array:
    """Q'_j(s', clip(pi'(s') + noise, -1, 1)) of every target network, (networks, batch)."""
    smoothed = deterministic_action(target_policy, batch.next_observation) + target_noise
    next_action = jnp.clip(smoothed, -1.0, 1.0)
    return q_values(targets, batch.next_observation, next_action)


def squared_distance(
    action: jax.Array, other: jax.Array, reduction: Literal["sum", "mean"]
) -> jax.Array:
    """D = ½‖a - a'‖² over action dimensions (Section 3.2), or half their mean square."""
    squares = (action - other) ** 2
    return 0.5 * (squares.sum(axis=-1) if reduction == "sum" else squares.mean(axis=-1))


def policy_loss(
    policy: Model,
    value: Model,
    observation: jax.Array,
    guide_action: jax.Array,
    weight: jax.Array,
    reduction: Literal["sum", "mean"],
) -> tuple[jax.Array, tuple[Model, jax.Array]]:
    """The augmented policy loss of Appendix H, with the mean distance to the guide in it."""
    outputs, after = train_network(policy, observation)
    action = jnp.tanh(outputs)
    distance = squared_distance(action, guide_action, reduction).mean()
    loss = -jnp.mean(q_value(value, observation, action)) + weight * distance
    return loss, (after, distance)


@dataclass(frozen=True, kw_only=True)
class TargetNoise:
    """Noise on target actions, which smooths Q over similar ones."""

    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on target actions (σ~)."""
    target_noise_clip: NonNegative = 0.5
    """Bound of the noise on target actions (c)."""

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """What is added to the target policy's actions."""
        noise = self.target_noise * jax.random.normal(key, shape, jnp.float32)
        return jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)


@dataclass(frozen=True, kw_only=True)
class DeterministicPolicy(ActorCritic):
    """Base of the algorithms with such a policy."""

    actions: ClassVar[Literal["continuous", "discrete"]] = "continuous"

    hidden_sizes: Sizes = (400, 300)
    """Widths of the hidden layers of every network."""
    learning_rate: Rate = 1e-3
    """Adam's step size."""
    num_critics: Critics = 2
    """Value networks; the smallest estimate is the target, and the policy climbs the first."""
    exploration_noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on actions in training (σ)."""
    exploration_noise_kind: Literal["gaussian", "ornstein_uhlenbeck"] = "gaussian"
    """Independent noise at every step, or a process that it drives."""
    exploration_noise_reversion: Annotated[float, Bounds(least=0.05, most=1)] = 0.15
    """Share of an Ornstein-Uhlenbeck process that is lost at every step (θ)."""
    distance_reduction: Literal["sum", "mean"] = "sum"
    """D between policies: ½ sum (paper) or ½ mean (authors) of squares over action dimensions."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        policy, value = self.init_networks(key, spec)
        optimizers = {"policy": self.start_optimizer(policy), "value": self.start_optimizer(value)}
        return Learner(policy, value, {}, optimizers, {})

    def init_networks(self, key: jax.Array, spec: EnvSpec) -> tuple[Params, Params]:
        """A policy and its Q networks."""
        keys = jax.random.split(key, 1 + self.num_critics)
        policy = self.for_policy.init_network(keys[0], [spec.features], spec.action_size)
        return policy, self.init_q_networks(keys[1:], spec)

    def act(
        self,
        policy: Params,
        observation: jax.Array,
        key: jax.Array,
        *,
        explore: bool,
        past_keys: jax.Array | None = None,
    ) -> jax.Array:
        action = deterministic_action(policy, observation)
        if explore:
            noise = self.exploration_noise * self._draw_noise(key, past_keys, action.shape)
            action = jnp.clip(action + noise, -1.0, 1.0)
        return action

    @property
    def noise_memory(self) -> int:
        return 0 if self.exploration_noise_kind == "gaussian" else NOISE_MEMORY

    def _draw_noise(
        self, key: jax.Array, past_keys: jax.Array | None, shape: tuple[int, ...]
    ) -> jax.Array:
        """Noise on actions, for σ = 1; a process without a past is drawn where it settles."""
        draw = partial(jax.random.normal, shape=shape, dtype=jnp.float32)
        if self.exploration_noise_kind == "gaussian":
            return draw(key)
        kept = 1.0 - self.exploration_noise_reversion
        if past_keys is None:
            return draw(key) / jnp.sqrt(1.0 - kept**2)
        noises = jax.vmap(draw)(jnp.concatenate([key[None], past_keys]))
        return jnp.tensordot(kept ** jnp.arange(len(noises), dtype=jnp.float32), noises, 1)

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        loss_of = partial(
            policy_loss,
            value=pick(learner.value, 0),
            observation=batch.observation,
            guide_action=deterministic_action(guide.policy, batch.observation),
            weight=guide.weight,
            reduction=self.distance_reduction,
        )
        policy, state, loss, distance = self.minimize_policy(loss_of, learner, guide)
        optimizers = {**learner.optimizers, "policy": state}
        learner = learner._replace(policy=policy, optimizers=optimizers)
        return self.follow_targets(learner), Metrics(loss, guide_distance=distance)

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return squared_distance(
            deterministic_action(policy, observation),
            deterministic_action(other, observation),
            self.distance_reduction,
        )

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return q_values(learner.value, observation, action).min(axis=0)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        return policy


@dataclass(frozen=True, kw_only=True)
class DeterministicActorCritic(DeterministicPolicy, WithTargets):
    """Base of TD3 and DDPG, which differ in the number of Q functions and in target noise."""

    targets_start: Literal["online", "independent"] = "online"
    """Target networks start as copies of the online ones (paper) or at random (authors)."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        online_key, target_key = jax.random.split(key)
        learner = super().init(online_key, spec)
        policy, value = learner.policy, learner.value
        if self.targets_start == "independent":
            policy, value = self.init_networks(target_key, spec)
        return learner._replace(targets={"policy": policy, "value": value})

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """What is added to the target policy's actions."""
        raise NotImplementedError

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        noise = self.draw_target_noise(key, batch.action.shape)
        values = target_values(learner.targets["policy"], learner.targets["value"], batch, noise)
        target = bootstrap(
            batch, self.discount_factor, self.combine(values, jax.random.fold_in(key, 1))
        )
        loss_of = partial(value_loss, batch=batch, target=target)
        value, state, loss, _ = self.minimize(loss_of, learner.value, learner.optimizers["value"])
        optimizers = {**learner.optimizers, "value": state}
        metrics = Metrics(loss, target_mean=target.mean())
        return learner._replace(value=value, optimizers=optimizers), metrics

    def follow_targets(self, learner: Learner) -> Learner:
        targets = {
            "policy": follow(learner.targets["policy"], learner.policy, self.target_rate),
            "value": follow(learner.targets["value"], learner.value, self.target_rate),
        }
        return learner._replace(targets=targets)
