"""TQC, truncated quantile critics (Kuznetsov et al. 2020): SAC whose Qs are distributions.

Each of n value networks gives m quantiles of the return, z_j1 ... z_jm. Their targets pool the
quantiles of all networks and leave the largest out, which is what keeps Q from running away.

    value step    a' ~ pi(s');  z = the quantiles of all Q'_j(s', a') but the n * drop largest
                  y_k = r + discount * gamma * (z_k - alpha log pi(a'|s'))
                  minimize mean_ijk |tau_i - 1{y_k < z_ji}| huber(y_k - z_ji),  tau_i = (i - ½) / m
                  targets <- (1 - tau) targets + tau online
    policy step   a ~ pi(s)
                  minimize mean(alpha log pi(a|s) - mean_ji z_ji(s, a)) + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy)

Only the policy's parameters are differentiated in its step, so nothing leaks into the critics, and
log pi is that of the action before tanh, so that it is finite for actions at ±1.

Differs from the authors' code (bayesgroup/tqc_pytorch) in: two networks of 256-256 instead of five
of 512-512-512, as Stable-Baselines3 has it; the tanh correction, see `squashed_gaussian.py`. How
many quantiles are dropped on which environment is in the presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy, bootstrap, per_network
from p3s.algorithms.parts.soft_actor_critic import SoftActorCritic, temperature
from p3s.algorithms.parts.soft_gaussian import SoftGaussian
from p3s.algorithms.parts.squashed_gaussian import gaussian, squashed_sample
from p3s.errors import UserError
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import Count, CountOrZero, Critics
from p3s.networks import apply_network, train_network
from p3s.types import EnvSpec, Learner, Params, Transition


def quantiles_of(values: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """The quantiles of stacked value networks, (networks, batch, quantiles)."""
    inputs, _ = per_network(values, None, observation, action)
    return jax.vmap(apply_network)(values, *inputs)


def truncated(quantiles: jax.Array, num_dropped: int) -> jax.Array:
    """All quantiles, sorted, without the largest: (networks, batch, m) -> (batch, k).

    num_dropped: per network.
    """
    networks, batch, each = quantiles.shape
    pooled = jnp.moveaxis(quantiles, 0, 1).reshape(batch, networks * each)
    return jnp.sort(pooled, axis=-1)[:, : networks * (each - num_dropped)]


def quantile_huber(quantiles: jax.Array, target: jax.Array) -> jax.Array:
    """mean |tau_i - 1{y_k < z_i}| huber(y_k - z_i) (eq. 10); (..., batch, m), (batch, k) -> ()."""
    count = quantiles.shape[-1]
    levels = (jnp.arange(count, dtype=jnp.float32) + 0.5) / count
    errors = target[..., None, :] - quantiles[..., None]
    sizes = jnp.abs(errors)
    huber = jnp.where(sizes > 1.0, sizes - 0.5, 0.5 * errors**2)
    weights = jnp.abs(levels[:, None] - (errors < 0))
    return jnp.mean(weights * huber)


@dataclass(frozen=True, kw_only=True)
class TQC(SoftGaussian, SoftActorCritic):
    """Soft actor-critic with truncated quantile critics."""

    name: ClassVar[str] = "tqc"
    presets: ClassVar[tuple[Layer, ...]] = (
        *OffPolicy.presets,
        Layer("its authors", {"num_dropped": by_family({"Hopper": 5, "HalfCheetah": 0})}),
    )

    num_critics: Critics = 2
    """Value networks; the quantiles of all are pooled."""
    num_quantiles: Count = 25
    """Quantiles of each value network."""
    num_dropped: CountOrZero = 2
    """The largest quantiles that targets leave out, per value network."""

    def problem(self) -> UserError | None:
        if self.num_dropped >= self.num_quantiles:
            message = f"num_dropped must be below num_quantiles, {self.num_quantiles}"
            return UserError(message, "num_dropped")
        return super().problem()

    def init_q_networks(self, keys: jax.Array, spec: EnvSpec, outputs: int = 1) -> Params:
        return super().init_q_networks(keys, spec, self.num_quantiles * outputs)

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        """y of a minibatch, (batch, kept quantiles)."""
        seen = batch.next_observation
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        action, log_density = squashed_sample(gaussian(learner.policy, seen), noise)
        ahead = truncated(quantiles_of(learner.targets["value"], seen, action), self.num_dropped)
        soft = ahead - temperature(learner) * log_density[:, None]
        return jax.vmap(partial(bootstrap, batch, self.discount_factor), 1, 1)(soft)

    def value_loss(
        self, values: Params, batch: Transition, target: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        inputs, _ = per_network(values, None, batch.observation, batch.action)
        quantiles, after = jax.vmap(train_network)(values, *inputs)
        return quantile_huber(quantiles, target), (after, None)

    def climbed_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        return self.action_value(learner, observation, action)

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return mean_quantile(learner.value, observation, action)


def mean_quantile(values: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q(s, a): the mean of the quantiles of all networks, (batch,)."""
    return quantiles_of(values, observation, action).mean(axis=(0, -1))
