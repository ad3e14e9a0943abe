"""A Gaussian policy squashed into [-1, 1] by tanh: what the forms of SAC share.

    u = mean(s) + std(s) * noise,  a = tanh(u)
    log pi(a|s) = log N(u; mean, std²) - sum log(1 - tanh²(u))

D has two forms. `distance` "action" is TD3's: half the squared distance between the noiseless
actions, averaged over dimensions. "kl" is KL(pi ‖ guide) between the Gaussians before squashing.
tanh is one-to-one and the same for both, so the change of variables cancels in the ratio of the
densities: this equals the KL between the squashed distributions, and it has a closed form.

Differs from the original code in the correction term, which is computed without the 1e-6 that
keeps log(1 - tanh²) finite there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import ActorCritic, Loss, q_values
from p3s.fields.types import Count
from p3s.networks import Model, apply_network, part, train_network
from p3s.types import EnvSpec, Guide, Learner, Params, Transition

LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
"""Bounds of log std in the original code."""
LOWEST_SOFT_LOG_STD = -10.0
"""In FlashSAC's."""


class Gaussian(NamedTuple):
    """Independent normal distributions, (batch, action)."""

    mean: jax.Array
    log_std: jax.Array


def gaussian_of(outputs: jax.Array, soft: bool = False) -> Gaussian:
    """Mean and log std, clipped or softly bounded, from a network's outputs, (..., 2 actions)."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    if soft:
        half = (HIGHEST_LOG_STD - LOWEST_SOFT_LOG_STD) / 2
        return Gaussian(mean, LOWEST_SOFT_LOG_STD + half * (1.0 + jnp.tanh(log_std)))
    return Gaussian(mean, jnp.clip(log_std, LOWEST_LOG_STD, HIGHEST_LOG_STD))


def gaussian(policy: Model, observation: jax.Array) -> Gaussian:
    """The policy's distribution before squashing."""
    return gaussian_of(apply_network(policy, observation), policy.network.soft_log_std)


def log_slope_of_tanh(before: jax.Array) -> jax.Array:
    """log(1 - tanh²(u)), in a form that neither overflows nor cancels."""
    return 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))


def squashed_sample(distribution: Gaussian, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """An action for each row of standard normal noise, and its log-density."""
    mean, log_std = distribution
    before = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
    return jnp.tanh(before), jnp.sum(log_normal - log_slope_of_tanh(before), axis=-1)


def gaussian_kl(ours: Gaussian, other: Gaussian) -> jax.Array:
    """KL(ours ‖ other), summed over action dimensions."""
    log_ratio = other.log_std - ours.log_std
    scaled = (ours.mean - other.mean) * jnp.exp(-other.log_std)
    terms = log_ratio + 0.5 * (jnp.exp(-2.0 * log_ratio) + scaled**2 - 1.0)
    return terms.sum(axis=-1)


def noiseless_distance(ours: Gaussian, other: Gaussian) -> jax.Array:
    """½ mean over action dimensions of (tanh mean - tanh other mean)²."""
    return 0.5 * jnp.mean((jnp.tanh(ours.mean) - jnp.tanh(other.mean)) ** 2, axis=-1)


DISTANCES = {"kl": gaussian_kl, "action": noiseless_distance}


def policy_loss(
    policy: Model,
    estimate: Callable[[jax.Array, jax.Array], jax.Array],
    observation: jax.Array,
    noise: jax.Array,
    temperature: jax.Array | float,
    guide: Gaussian,
    weight: jax.Array,
    distance_of: Callable[[Gaussian, Gaussian], jax.Array] = gaussian_kl,
    further: jax.Array | None = None,
) -> tuple[jax.Array, tuple[Model, tuple[jax.Array, jax.Array]]]:
    """mean(alpha log pi(a|s) - Q(s, a) + weight D), with mean entropy and mean D.

    estimate: Q(s, a) from the value networks, the smallest in SAC. further: other observations
    that go through the policy in the same pass, for its norms.
    """
    seen = observation if further is None else jnp.concatenate([observation, further])
    outputs, after = train_network(policy, seen)
    ours = gaussian_of(outputs[: len(observation)], policy.network.soft_log_std)
    action, log_density = squashed_sample(ours, noise)
    value = estimate(observation, action)
    distance = distance_of(ours, guide).mean()
    loss = jnp.mean(temperature * log_density - value) + weight * distance
    return loss, (after, (-log_density.mean(), distance))


@dataclass(frozen=True, kw_only=True)
class GaussianActorCritic(ActorCritic):
    """Base of the algorithms with such a policy."""

    actions: ClassVar[Literal["continuous", "discrete"]] = "continuous"

    batch_size: Count = 256
    """Transitions in a minibatch (B)."""
    policy_period: Count = 1
    """Value updates per policy update."""
    distance: Literal["kl", "action"] = "kl"
    """How far two policies are apart, for guidance: KL (kl), or half the mean squared distance of
    their noiseless actions (action), which has the unit of TD3's."""

    @property
    def distance_of(self) -> Callable[[Gaussian, Gaussian], jax.Array]:
        """The distance between two distributions at each state."""
        return DISTANCES[self.distance]

    def init_policy(self, key: jax.Array, spec: EnvSpec) -> Params:
        """Mean and log std of every action dimension from one network."""
        return self.for_policy.init_network(key, [spec.features], 2 * spec.action_size)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        distribution = gaussian(policy, observation)
        if not explore:
            return jnp.tanh(distribution.mean)
        noise = jax.random.normal(key, distribution.mean.shape, jnp.float32)
        return squashed_sample(distribution, noise)[0]

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return self.distance_of(gaussian(policy, observation), gaussian(other, observation))

    def q_networks(self, learner: Learner) -> Params:
        """The stacked Q networks."""
        return learner.value

    def entropy_weight(self, learner: Learner) -> jax.Array | float:
        """Weight of the entropy now (α)."""
        raise NotImplementedError

    def climbed_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        """The estimate of Q(s, a) that the policy climbs, (batch,)."""
        values = q_values(self.q_networks(learner), observation, action)
        return self.combine(values, jax.random.fold_in(key, 1))

    def further_observations(self, batch: Transition) -> jax.Array | None:
        """Other observations that go through the policy in its step too, for its norms."""
        return None

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> Loss:
        """The policy's loss on a minibatch; with it the mean entropy and distance to the guide."""
        return partial(
            policy_loss,
            estimate=partial(self.climbed_value, learner, key=key),
            observation=batch.observation,
            noise=jax.random.normal(key, batch.action.shape, jnp.float32),
            temperature=self.entropy_weight(learner),
            guide=gaussian(guide.policy, batch.observation),
            weight=guide.weight,
            distance_of=self.distance_of,
            further=self.further_observations(batch),
        )

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return q_values(self.q_networks(learner), observation, action).min(axis=0)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        return part(policy, outputs=slice(spec.action_size))
