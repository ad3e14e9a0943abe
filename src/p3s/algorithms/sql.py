"""SQL, soft Q-learning with amortized Stein variational gradient descent (Haarnoja et al. 2017).

    value step    V'(s') = log mean_k exp Q'(s', a_k) + size * log 2,   a_k uniform in [-1, 1]^size
                  y = scale * r + discount * gamma * V'(s');  minimize ½ mean (y - Q(s, a))²
                  every `target_period` updates: Q' <- (1 - target_rate) Q' + target_rate Q
    policy step   a = tanh f(s, noise) for `num_particles` noises: half stay (j), half move (i)
                  log p(a|s) = Q(s, a) + sum log(1 - a² + 1e-6)                  (up to a constant)
                  direction_i = mean_j k(a_j, a_i) grad log p(a_j) + grad_{a_j} k(a_j, a_i)
                  minimize -mean_i a_i . direction_i + weight * D(pi, guide)
                  k = exp(-‖a_j - a_i‖² / h),  h = max(median ‖a_j - a_i‖² / log(num fixed), 1e-3)

The policy is a sampler without a density, so D is no KL. Both policies are fed the same noise:

    D(s) = mean over noise of ½‖pi(s, noise) - pi'(s, noise)‖²

This is the cost of one coupling of the two action distributions, hence an upper bound of half their
squared Wasserstein-2 distance; it is zero for equal policies, and for policies that ignore the
noise it is TD3's ½‖.‖². In the policy's loss it is estimated with the noises of the moving actions;
`distance`, which has nothing to draw from, uses the same few quasi-random noises every time.

Differs from the original code (commit 6f51eac) in: the policy's surrogate loss is a mean over
states and actions where that code has a sum, which Adam does not notice and the pull needs; the
median of an even number of distances lies between the middle two. When it learns, its initial
weights and its reward scales are in the presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from p3s.algorithms.off_policy import ActorCritic, WithTargets, bootstrap, q_value
from p3s.errors import UserError
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import Count, Positive, Share, Sizes
from p3s.networks import Model, apply_network, part, train_network
from p3s.trees import follow_every
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition

SMALLEST_BANDWIDTH = 1e-3
SQUASH_EPSILON = 1e-6
NUM_DISTANCE_NOISES = 8


def repeat(observation: jax.Array, particles: jax.Array) -> jax.Array:
    """Each observation once per particle, (..., particles, *observation)."""
    leading = particles.ndim - 2
    shape = (*particles.shape[:-1], *observation.shape[leading:])
    return jnp.broadcast_to(jnp.expand_dims(observation, leading), shape)


def particle_rows(observation: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Observations and noises as one long batch: gradients of weights are then plain products."""
    repeated = repeat(observation, noise)
    own = observation.shape[noise.ndim - 2 :]
    return repeated.reshape(-1, *own), noise.reshape(-1, noise.shape[-1])


def sample_actions(policy: Model, observation: jax.Array, noise: jax.Array) -> jax.Array:
    """tanh f(s, noise) for noises (..., particles, action) of every observation."""
    rows = apply_network(policy, *particle_rows(observation, noise))
    return jnp.tanh(rows.reshape(*noise.shape[:-1], -1))


def soft_value(value: Params, observation: jax.Array, actions: jax.Array) -> jax.Array:
    """log of the integral of exp Q(s, .) over [-1, 1]^size, from uniform actions (eq. 10)."""
    count, size = actions.shape[-2:]
    values = q_value(value, repeat(observation, actions), actions)
    mean = jax.nn.logsumexp(values, axis=-1) - jnp.log(float(count))
    return mean + size * jnp.log(2.0)


def value_loss(
    value: Model, batch: Transition, target: jax.Array
) -> tuple[jax.Array, tuple[Model, None]]:
    """½ mean (y - Q(s, a))²."""
    outputs, after = train_network(value, batch.observation, batch.action)
    return 0.5 * jnp.mean((outputs[..., 0] - target) ** 2), (after, None)


def log_density(value: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """What the policy should sample from, before tanh, up to a constant: Q + log |da/du|."""
    slope = jnp.sum(jnp.log(1.0 - action**2 + SQUASH_EPSILON), axis=-1)
    return q_value(value, observation, action) + slope


def median(values: jax.Array) -> jax.Array:
    """The median of a vector.

    By counting who is smaller: so few numbers are compared faster than a compiler's sort goes.
    """
    index = np.arange(len(values))
    before = index[:, None] < index[None, :]
    one, other = values[:, None], values[None, :]
    rank = jnp.sum(jnp.where(before, one <= other, one < other), axis=0)
    low, high = (len(values) - 1) // 2, len(values) // 2
    return 0.5 * (jnp.sum(values, where=rank == low) + jnp.sum(values, where=rank == high))


def stein_direction(fixed: jax.Array, moving: jax.Array, gradients: jax.Array) -> jax.Array:
    """Where each moving action should go (eq. 13): (fixed, size), (moving, size) -> (moving, size).

    gradients: of log p at the fixed actions.
    """
    differences = fixed[:, None, :] - moving[None, :, :]
    squares = jnp.sum(differences**2, axis=-1)
    width = median(squares.ravel()) / jnp.log(float(len(fixed)))
    bandwidth = jnp.maximum(width, SMALLEST_BANDWIDTH)
    kernel = jnp.exp(-squares / bandwidth)[..., None]
    repulsion = -2.0 * differences / bandwidth * kernel
    return jnp.mean(kernel * gradients[:, None, :] + repulsion, axis=0)


def coupled_distance(action: jax.Array, other: jax.Array) -> jax.Array:
    """½‖a - a'‖² between actions of the same noise, mean over noises: (..., noises, size)."""
    return 0.5 * jnp.mean(jnp.sum((action - other) ** 2, axis=-1), axis=-1)


def quasi_normal_noise(count: int, size: int) -> np.ndarray:
    """Standard normal points that fill the space evenly, the same ones always, (count, size).

    An additive recurrence with the generalized golden ratio, taken through the normal quantiles.
    """
    ratio = 2.0
    for _ in range(50):  # the root of x^(size + 1) = x + 1
        ratio = (1.0 + ratio) ** (1.0 / (size + 1))
    steps = ratio ** -np.arange(1.0, size + 1)
    points = (0.5 + np.arange(count)[:, None] * steps) % 1.0
    return ndtri(points).astype(np.float32)


def policy_loss(
    policy: Model,
    observation: jax.Array,
    noise: jax.Array,
    direction: jax.Array,
    guide_actions: jax.Array,
    weight: jax.Array,
) -> tuple[jax.Array, tuple[Model, jax.Array]]:
    """Its gradient moves actions along the Stein direction (eq. 14) and to the guide's."""
    rows, after = train_network(policy, *particle_rows(observation, noise))
    actions = jnp.tanh(rows.reshape(*noise.shape[:-1], -1))
    distance = coupled_distance(actions, guide_actions).mean()
    loss = -jnp.mean(jnp.sum(actions * direction, axis=-1)) + weight * distance
    return loss, (after, distance)


def _noise_size(policy: Model) -> int:
    """Numbers that the policy takes as noise."""
    return policy.shapes[-1][0]


def _batch_shape(policy: Model, observation: jax.Array) -> tuple[int, ...]:
    """The axes of an array of observations that do not belong to one."""
    return observation.shape[: observation.ndim - len(policy.shapes[0])]


CODE = {
    "initial_steps": lambda setting: setting.own_steps(1000),
    "random_steps": 0,
    "initialization": "xavier",
    "reward_scale": by_family({"Walker2d": 10.0, "Ant": 300.0}),
}
"""Of the authors (6f51eac)."""


@dataclass(frozen=True, kw_only=True)
class SQL(ActorCritic, WithTargets):
    """Soft Q-learning with a sampler for a policy."""

    name: ClassVar[str] = "sql"
    actions: ClassVar[Literal["continuous", "discrete"]] = "continuous"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", CODE),)

    hidden_sizes: Sizes = (128, 128)
    """Widths of the hidden layers of every network."""
    batch_size: Count = 128
    """Transitions in a minibatch (B)."""
    policy_period: Count = 1
    """Value updates per policy update."""
    target_rate: Share = 1.0
    """How far targets move at a time: 1 copies (hard targets), less follows (soft)."""
    target_period: Count = 1000
    """Updates between two moves of the targets."""
    reward_scale: Positive = 30.0
    """Rewards are multiplied by this; the larger, the less random the policy."""
    num_value_actions: Count = 16
    """Uniform actions that the soft value of a state is estimated with."""
    num_particles: Count = 16
    """Actions of the policy per state in its update: half of them move, half stay fixed."""

    def problem(self) -> UserError | None:
        if self.num_particles < 4 or self.num_particles % 2:
            message = f"num_particles must be even and at least 4, not {self.num_particles}"
            return UserError(message, "num_particles")
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        policy_key, value_key = jax.random.split(key)
        inputs = [spec.features, (spec.action_size,)]
        policy = self.for_policy.init_network(policy_key, inputs, spec.action_size)
        value = self.init_network(value_key, inputs, 1)
        optimizers = {"policy": self.start_optimizer(policy), "value": self.start_optimizer(value)}
        return Learner(policy, value, {"value": value}, optimizers, {"num_updates": jnp.int32(0)})

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        shape = (*_batch_shape(policy, observation), 1, _noise_size(policy))
        noise = jax.random.normal(key, shape, jnp.float32) if explore else jnp.zeros(shape)
        return sample_actions(policy, observation, noise)[..., 0, :]

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        shape = (len(batch.reward), self.num_value_actions, batch.action.shape[-1])
        actions = jax.random.uniform(key, shape, jnp.float32, -1, 1)
        next_value = soft_value(learner.targets["value"], batch.next_observation, actions)
        scaled = batch._replace(reward=self.reward_scale * batch.reward)
        target = bootstrap(scaled, self.discount_factor, next_value)
        loss_of = partial(value_loss, batch=batch, target=target)
        value, state, loss, _ = self.minimize(loss_of, learner.value, learner.optimizers["value"])
        count = learner.extra["num_updates"] + 1
        targets = follow_every(
            learner.targets["value"], value, self.target_rate, count, self.target_period
        )
        learner = learner._replace(
            value=value,
            targets={"value": targets},
            optimizers={**learner.optimizers, "value": state},
            extra={**learner.extra, "num_updates": count},
        )
        return learner, Metrics(loss, target_mean=target.mean())

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        seen = batch.observation
        shape = (len(seen), self.num_particles, batch.action.shape[-1])
        fixed_noise, noise = jnp.split(jax.random.normal(key, shape, jnp.float32), 2, axis=1)
        fixed = sample_actions(learner.policy, seen, fixed_noise)
        moving = sample_actions(learner.policy, seen, noise)
        repeated = repeat(seen, fixed)
        gradients = jax.grad(lambda actions: log_density(learner.value, repeated, actions).sum())(
            fixed
        )
        loss_of = partial(
            policy_loss,
            observation=seen,
            noise=noise,
            direction=jax.vmap(stein_direction)(fixed, moving, gradients),
            guide_actions=sample_actions(guide.policy, seen, noise),
            weight=guide.weight,
        )
        policy, state, loss, distance = self.minimize_policy(loss_of, learner, guide)
        spread = jnp.std(moving, axis=1).mean()
        metrics = Metrics(loss, guide_distance=distance, more={"action_spread": spread})
        optimizers = {**learner.optimizers, "policy": state}
        return learner._replace(policy=policy, optimizers=optimizers), metrics

    def distance_between(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        points = quasi_normal_noise(NUM_DISTANCE_NOISES, _noise_size(policy))
        noise = jnp.broadcast_to(points, (*_batch_shape(policy, observation), *points.shape))
        return coupled_distance(
            sample_actions(policy, observation, noise), sample_actions(other, observation, noise)
        )

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return q_value(learner.value, observation, action) / self.reward_scale

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Model | None:
        # Without noise its rows of the first layer do nothing.
        return part(policy, inputs=slice(spec.observation_size))
