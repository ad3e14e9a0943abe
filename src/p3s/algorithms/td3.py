"""TD3, twin delayed deep deterministic policy gradient (Appendix G).

    value step    a' = clip(pi'(s') + clip(N(0, s~²), -c, c), -1, 1)
                  y  = r + discount * gamma * min_j Q'_j(s', a')
                  minimise sum_j mean (y - Q_j(s, a))²
    policy step   minimise mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))      (Appendix H)
                  targets <- (1 - tau) targets + tau online

Differs from the authors' P3S code in nothing that a field does not name: `distance_reduction`,
`targets_start` and `initialization` are the places where that code departs from the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from p3s.algorithms.base import Algorithm
from p3s.networks import Initialization, apply_mlp, follow, init_mlp
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def deterministic_action(policy: Params, observation: jax.Array) -> jax.Array:
    """pi(s), in [-1, 1]."""
    return jnp.tanh(apply_mlp(policy, observation))


def q_value(value: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q(s, a) of one value network."""
    return apply_mlp(value, jnp.concatenate([observation, action], axis=-1))[..., 0]


def twin_q_values(values: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q_1 and Q_2 of a pair of stacked value networks, (2, batch)."""
    return jax.vmap(q_value, in_axes=(0, None, None))(values, observation, action)


def td_target(
    target_policy: Params,
    target_values: Params,
    batch: Transition,
    target_noise: jax.Array,
    discount_factor: float,
) -> jax.Array:
    """y of Appendix G: the smaller target value at the smoothed target action."""
    smoothed = deterministic_action(target_policy, batch.next_observation) + target_noise
    next_action = jnp.clip(smoothed, -1.0, 1.0)
    next_value = twin_q_values(target_values, batch.next_observation, next_action).min(axis=0)
    return batch.reward + batch.discount * discount_factor * next_value


def value_loss(values: Params, batch: Transition, target: jax.Array) -> jax.Array:
    """Sum over j of mean (y - Q_j(s, a))²."""
    errors = twin_q_values(values, batch.observation, batch.action) - target
    return jnp.sum(jnp.mean(errors**2, axis=1))


def squared_distance(
    action: jax.Array, other: jax.Array, reduction: Literal["sum", "mean"]
) -> jax.Array:
    """D = ½‖a - a'‖² over action dimensions (Section 3.2), or half their mean square."""
    squares = (action - other) ** 2
    return 0.5 * (squares.sum(axis=-1) if reduction == "sum" else squares.mean(axis=-1))


def policy_loss(
    policy: Params,
    value: Params,
    observation: jax.Array,
    guide_action: jax.Array,
    weight: jax.Array,
    reduction: Literal["sum", "mean"],
) -> tuple[jax.Array, jax.Array]:
    """The augmented policy loss of Appendix H, and the mean distance to the guide in it."""
    action = deterministic_action(policy, observation)
    distance = squared_distance(action, guide_action, reduction).mean()
    return -jnp.mean(q_value(value, observation, action)) + weight * distance, distance


@dataclass(frozen=True, kw_only=True)
class TD3(Algorithm):
    """Twin delayed deep deterministic policy gradient."""

    name: ClassVar[str] = "td3"
    actions: ClassVar[Literal["continuous", "discrete"]] = "continuous"

    hidden_sizes: tuple[int, ...] = (400, 300)
    """Widths of the hidden layers of policy and value networks."""
    learning_rate: float = 1e-3
    """Adam's step size, policy and values."""
    discount: float = 0.99
    """Discount factor (γ)."""
    target_rate: float = 0.005
    """How fast targets follow (τ)."""
    exploration_noise: float = 0.1
    """Standard deviation of the Gaussian noise on actions in training (σ)."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions (σ~)."""
    target_noise_clip: float = 0.5
    """Bound of the noise on target actions (c)."""
    distance_reduction: Literal["sum", "mean"] = "sum"
    """D between policies: ½ sum (paper) or ½ mean (authors) of squares over action dimensions."""
    targets_start: Literal["online", "independent"] = "online"
    """Target networks start as copies of the online ones (paper) or at random (authors)."""
    initialization: Initialization = "fan_in"
    """Of weights: U(±1/√fan_in) (paper's TD3), or Xavier with zero biases (authors)."""

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        online_key, target_key = jax.random.split(key)
        policy, value = self._init_networks(online_key, spec)
        independent = self.targets_start == "independent"
        targets = self._init_networks(target_key, spec) if independent else (policy, value)
        optimizer = optax.adam(self.learning_rate)
        extra = {
            "target_policy": targets[0],
            "target_value": targets[1],
            "policy_optimizer": optimizer.init(policy),
            "value_optimizer": optimizer.init(value),
        }
        return Learner(policy, value, extra)

    def _init_networks(self, key: jax.Array, spec: EnvSpec) -> tuple[Params, Params]:
        policy_key, *value_keys = jax.random.split(key, 3)
        observation, action = spec.observation_size, spec.action_size
        policy = init_mlp(policy_key, [observation], self.hidden_sizes, action, self.initialization)
        values = [
            init_mlp(value_key, [observation, action], self.hidden_sizes, 1, self.initialization)
            for value_key in value_keys
        ]
        return policy, jax.tree.map(lambda *pair: jnp.stack(pair), *values)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        action = deterministic_action(policy, observation)
        if explore:
            noise = self.exploration_noise * jax.random.normal(key, action.shape, jnp.float32)
            action = jnp.clip(action + noise, -1.0, 1.0)
        return action

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        noise = self.target_noise * jax.random.normal(key, batch.action.shape, jnp.float32)
        noise = jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)
        extra = learner.extra
        target = td_target(
            extra["target_policy"], extra["target_value"], batch, noise, self.discount
        )
        loss, gradient = jax.value_and_grad(value_loss)(learner.value, batch, target)
        updates, state = optax.adam(self.learning_rate).update(gradient, extra["value_optimizer"])
        learner = learner._replace(
            value=optax.apply_updates(learner.value, updates),
            extra={**extra, "value_optimizer": state},
        )
        return learner, {"value_loss": loss, "target_mean": target.mean()}

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        first_value = jax.tree.map(lambda pair: pair[0], learner.value)
        guide_action = deterministic_action(guide.policy, batch.observation)
        (loss, distance), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            learner.policy,
            first_value,
            batch.observation,
            guide_action,
            guide.weight,
            self.distance_reduction,
        )
        extra = learner.extra
        updates, state = optax.adam(self.learning_rate).update(gradient, extra["policy_optimizer"])
        policy = optax.apply_updates(learner.policy, updates)
        rate = self.target_rate
        extra = {
            **extra,
            "policy_optimizer": state,
            "target_policy": follow(extra["target_policy"], policy, rate),
            "target_value": follow(extra["target_value"], learner.value, rate),
        }
        metrics = {"policy_loss": loss, "guide_distance": distance}
        return Learner(policy, learner.value, extra), metrics

    def distance(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return squared_distance(
            deterministic_action(policy, observation),
            deterministic_action(other, observation),
            self.distance_reduction,
        )
