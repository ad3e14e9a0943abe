"""A deterministic policy with Q functions behind it: what TD3 and DDPG share.

value step    y = r + discount * gamma * min_j Q'_j(s', clip(pi'(s') + noise, -1, 1))
              minimise sum_j mean (y - Q_j(s, a))²
policy step   minimise mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))      (Appendix H)
              targets <- (1 - tau) targets + tau online
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy, bootstrap, q_value, q_values, value_loss
from p3s.networks import apply_network, follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


def deterministic_action(policy: Params, observation: jax.Array) -> jax.Array:
    """pi(s), in [-1, 1]."""
    return jnp.tanh(apply_network(policy, observation))


def td_target(
    target_policy: Params,
    target_values: Params,
    batch: Transition,
    target_noise: jax.Array,
    discount_factor: float,
) -> jax.Array:
    """y of Appendix G: the smallest target value at the smoothed target action."""
    smoothed = deterministic_action(target_policy, batch.next_observation) + target_noise
    next_action = jnp.clip(smoothed, -1.0, 1.0)
    next_value = q_values(target_values, batch.next_observation, next_action).min(axis=0)
    return bootstrap(batch, discount_factor, next_value)


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
class DeterministicActorCritic(OffPolicy):
    """Base of TD3 and DDPG, which differ in the number of Q functions and in target noise."""

    actions: ClassVar[Literal["continuous", "discrete"]] = "continuous"
    num_values: ClassVar[int]

    hidden_sizes: tuple[int, ...] = (400, 300)
    """Widths of the hidden layers of policy and value networks."""
    learning_rate: float = 1e-3
    """Adam's step size, policy and values."""
    exploration_noise: float = 0.1
    """Standard deviation of the Gaussian noise on actions in training (σ)."""
    distance_reduction: Literal["sum", "mean"] = "sum"
    """D between policies: ½ sum (paper) or ½ mean (authors) of squares over action dimensions."""
    targets_start: Literal["online", "independent"] = "online"
    """Target networks start as copies of the online ones (paper) or at random (authors)."""

    def problem(self) -> str | None:
        if self.exploration_noise < 0:
            return f"exploration_noise must be at least 0, not {self.exploration_noise}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        online_key, target_key = jax.random.split(key)
        policy, value = self._init_networks(online_key, spec)
        independent = self.targets_start == "independent"
        targets = self._init_networks(target_key, spec) if independent else (policy, value)
        extra = {
            "target_policy": targets[0],
            "target_value": targets[1],
            "policy_optimizer": self.start_optimizer(policy),
            "value_optimizer": self.start_optimizer(value),
        }
        return Learner(policy, value, extra)

    def _init_networks(self, key: jax.Array, spec: EnvSpec) -> tuple[Params, Params]:
        keys = jax.random.split(key, 1 + self.num_values)
        policy = self.init_network(keys[0], [spec.observation_size], spec.action_size)
        return policy, self.init_q_networks(keys[1:], spec)

    def act(
        self, policy: Params, observation: jax.Array, key: jax.Array, *, explore: bool
    ) -> jax.Array:
        action = deterministic_action(policy, observation)
        if explore:
            noise = self.exploration_noise * jax.random.normal(key, action.shape, jnp.float32)
            action = jnp.clip(action + noise, -1.0, 1.0)
        return action

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """What is added to the target policy's actions."""
        raise NotImplementedError

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        noise = self.draw_target_noise(key, batch.action.shape)
        extra = learner.extra
        target = td_target(
            extra["target_policy"], extra["target_value"], batch, noise, self.discount
        )
        loss, gradient = jax.value_and_grad(value_loss)(learner.value, batch, target)
        value, state = self.descend(learner.value, gradient, extra["value_optimizer"])
        learner = learner._replace(value=value, extra={**extra, "value_optimizer": state})
        return learner, {"value_loss": loss, "target_mean": target.mean()}

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        first_value = jax.tree.map(lambda stack: stack[0], learner.value)
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
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        learner = Learner(policy, learner.value, {**extra, "policy_optimizer": state})
        return self.follow_targets(learner), {"policy_loss": loss, "guide_distance": distance}

    def follow_targets(self, learner: Learner) -> Learner:
        extra, rate = learner.extra, self.target_rate
        targets = {
            "target_policy": follow(extra["target_policy"], learner.policy, rate),
            "target_value": follow(extra["target_value"], learner.value, rate),
        }
        return learner._replace(extra={**extra, **targets})

    def distance(self, policy: Params, other: Params, observation: jax.Array) -> jax.Array:
        return squared_distance(
            deterministic_action(policy, observation),
            deterministic_action(other, observation),
            self.distance_reduction,
        )

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        return q_values(learner.value, observation, action).min(axis=0)

    def noiseless_layers(self, policy: Params, spec: EnvSpec) -> Params:
        return policy
