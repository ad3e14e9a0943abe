"""What the on-policy algorithms have in common: rollouts, advantages, a policy of plain outputs.

    collect       rows in order, until the algorithm says that the rollout is full
    improve       one compiled call over the whole rollout, which is then discarded

The policy does not change while a rollout is collected, so the densities and values at the time
of acting are computed again, exactly, at the start of `improve`: a row needs no more fields than
in a replay, and a mark where an episode ended.

A policy is {"layers", "log_std"}: a Gaussian around the network's output with its own spread for
every action dimension. It is not squashed: actions are stored as drawn, and the environment clips
them to [-1, 1]. For discrete actions it is {"layers"}: the outputs are logits.

    delta_t = r_t + gamma * discount_t * V(s'_t) - V(s_t)
    A_t     = delta_t + gamma * lambda * (1 - ended_t) * A_{t+1}             (GAE)

A termination has discount 0. A truncation looks ahead to the true final observation and ends the
sum there; so does the end of a rollout in mid-episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.base import Algorithm
from p3s.algorithms.parts.categorical import at_action
from p3s.algorithms.parts.squashed_gaussian import Gaussian
from p3s.fields.types import Bounds, Share, Sizes
from p3s.networks import MLP, Activation, Model, apply_network
from p3s.types import EnvSpec, Learner, Params, Recorded, Rollout, Transition


def init_dense(
    key: jax.Array,
    sizes: list[int],
    scales: list[float],
    activation: Activation,
    scale_images: bool,
) -> Model:
    """Dense layers with orthogonal weights, each times its scale, and zero biases."""
    layers = [
        {
            "weight": jax.nn.initializers.orthogonal(scale)(
                jax.random.fold_in(key, index), shape, jnp.float32
            ),
            "bias": jnp.zeros(shape[1], jnp.float32),
        }
        for index, (shape, scale) in enumerate(zip(pairwise(sizes), scales, strict=True))
    ]
    network = MLP(
        hidden_sizes=tuple(sizes[1:-1]),
        activation=activation,
        layer_norm=False,
        initialization="fan_in",
        scale_images=scale_images,
    )
    return Model(layers, network, ((sizes[0],),))


def log_density(distribution: Gaussian, action: jax.Array) -> jax.Array:
    """log N(a; mean, std²), summed over action dimensions."""
    mean, log_std = distribution
    scaled = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)


def entropy(distribution: Gaussian) -> jax.Array:
    """½ log(2 pi e std²), summed over action dimensions."""
    return jnp.sum(distribution.log_std + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e), axis=-1)


def policy_gaussian(policy: Params, observation: jax.Array) -> Gaussian:
    """The distribution of a continuous policy's actions, before they are clipped."""
    mean = apply_network(policy["layers"], observation)
    return Gaussian(mean, jnp.broadcast_to(policy["log_std"], mean.shape))


def log_probability(policy: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """log pi(a|s), for either kind of actions."""
    if "log_std" in policy:
        return log_density(policy_gaussian(policy, observation), action)
    logits = apply_network(policy["layers"], observation)
    return at_action(jax.nn.log_softmax(logits), action)


def policy_entropy(policy: Params, observation: jax.Array) -> jax.Array:
    """Entropy of the policy at each observation, for either kind of actions."""
    if "log_std" in policy:
        return entropy(policy_gaussian(policy, observation))
    log_p = jax.nn.log_softmax(apply_network(policy["layers"], observation))
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def advantages(
    steps: Transition,
    ended: jax.Array,
    values: jax.Array,
    next_values: jax.Array,
    discount_factor: float,
    trace_decay: float,
) -> jax.Array:
    """Generalized advantage estimates (Schulman et al. 2016, eq. 16), (rows,)."""
    deltas = steps.reward + discount_factor * steps.discount * next_values - values
    decays = discount_factor * trace_decay * (1.0 - ended)
    return backwards_sum(deltas, decays)


def backwards_sum(terms: jax.Array, decays: jax.Array) -> jax.Array:
    """x_t = term_t + decay_t * x_{t+1}, from the last row to the first."""

    def step(following: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        term, decay = row
        total = term + decay * following
        return total, total

    return jax.lax.scan(step, jnp.zeros((), terms.dtype), (terms, decays), reverse=True)[1]


@dataclass(frozen=True, kw_only=True)
class OnPolicy(Algorithm):
    """Base of the algorithms that learn from their own latest steps only."""

    on_policy: ClassVar[bool] = True
    squashed: ClassVar[bool] = False
    actions: ClassVar[Literal["continuous", "discrete", "both"]] = "both"

    normalize_observations: bool = True
    """Scale observations to mean 0 and standard deviation 1, by running statistics."""
    hidden_sizes: Sizes = (64, 64)
    """Widths of the hidden layers of policy and value networks."""
    rollout_steps: Annotated[int, Bounds(least=2)] = 2048
    """Environment steps between two updates."""
    discount_factor: Share = 0.99
    """Discount factor (γ)."""
    trace_decay: Share = 0.95
    """How far an advantage looks ahead (λ)."""

    def rollout_full(self, num_rows: int, episode_ended: bool) -> bool:
        """Whether `improve` is due, after a step that did or did not end an episode."""
        return num_rows >= self.rollout_steps

    def improve(
        self, learner: Learner, rollout: Rollout, key: jax.Array
    ) -> tuple[Learner, Recorded]:
        """Learn from a whole rollout."""
        raise NotImplementedError

    def state_value(self, learner: Learner, observation: jax.Array, step: jax.Array) -> jax.Array:
        """The learner's estimate of V(s) at this step of an episode, (batch,)."""
        raise NotImplementedError

    def init_policy(self, key: jax.Array, spec: EnvSpec, scale: float, last: float) -> Params:
        """A policy whose hidden layers and whose last one have these scales."""
        sizes = [spec.observation_size, *self.hidden_sizes, spec.action_size]
        scales = [scale] * len(self.hidden_sizes) + [last]
        layers = init_dense(key, sizes, scales, "tanh", self.scale_images)
        if spec.discrete:
            return {"layers": layers}
        return {"layers": layers, "log_std": jnp.zeros(spec.action_size, jnp.float32)}

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        if "log_std" not in policy:
            logits = apply_network(policy["layers"], observation)
            if not explore:
                return logits.argmax(axis=-1).astype(jnp.int32)
            return jax.random.categorical(key, logits).astype(jnp.int32)
        mean, log_std = policy_gaussian(policy, observation)
        if not explore:
            return jnp.clip(mean, -1.0, 1.0)
        # Not clipped: it is stored as drawn, since its density is that of what was drawn.
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, jnp.float32)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        return policy["layers"]
