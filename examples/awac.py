"""An algorithm from outside the package: AWAC in its simplest form (after Nair et al. 2020).

value step    y = r + discount * gamma * Q'(s', pi'(s'));  minimize mean (y - Q(s, a))²
policy step   w = min(exp((Q(s, a) - Q(s, pi(s))) / temperature), 20)
              minimize mean(w * ½‖pi(s) - a‖²) + weight * D(pi, guide),  then targets follow
p3s train Pendulum-v1 --algorithm examples.awac:AWAC --steps 20000
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s import register
from p3s.algorithms.off_policy import WithTargets, bootstrap, q_values, value_loss
from p3s.algorithms.parts.deterministic import deterministic_action, squared_distance
from p3s.networks import train_network
from p3s.trees import follow
from p3s.types import Learner, Metrics


@register
@dataclass(frozen=True, kw_only=True)
class AWAC(WithTargets):
    """Imitate the replay's actions, the better the more."""

    name: ClassVar[str] = "awac"
    actions: ClassVar = "continuous"

    exploration_noise: float = 0.3
    """Standard deviation of the noise on actions in training."""
    temperature: float = 1.0
    """How much better an action must be to count e times as much."""

    def init(self, key, spec):
        policy_key, value_key = jax.random.split(key)
        policy = self.init_network(policy_key, [spec.features], spec.action_size)
        value = self.init_q_networks(jax.random.split(value_key, 1), spec)
        optimizers = {"policy": self.start_optimizer(policy), "value": self.start_optimizer(value)}
        return Learner(policy, value, {"policy": policy, "value": value}, optimizers, {})

    def act(self, policy, observation, key, *, explore):
        action = deterministic_action(policy, observation)
        noise = self.exploration_noise * jax.random.normal(key, action.shape) if explore else 0.0
        return jnp.clip(action + noise, -1, 1)

    def value_step(self, learner, batch, key):
        targets, states, seen = learner.targets, learner.optimizers, batch.next_observation
        ahead = q_values(targets["value"], seen, deterministic_action(targets["policy"], seen))[0]
        target = bootstrap(batch, self.discount_factor, ahead)
        q, state, loss, _ = self.minimize(
            lambda value: value_loss(value, batch, target), learner.value, states["value"]
        )
        return learner._replace(value=q, optimizers={**states, "value": state}), Metrics(loss)

    def policy_step(self, learner, batch, guide, key):
        seen, states = batch.observation, learner.optimizers
        gain = q_values(learner.value, seen, batch.action)[0]
        gain -= q_values(learner.value, seen, deterministic_action(learner.policy, seen))[0]
        goodness = jnp.minimum(jnp.exp(gain / self.temperature), 20.0)
        guide_action = deterministic_action(guide.policy, seen)

        def loss_of(policy):
            outputs, after = train_network(policy, seen)
            error = squared_distance(jnp.tanh(outputs), batch.action, "sum")
            pull = squared_distance(jnp.tanh(outputs), guide_action, "sum")
            return jnp.mean(goodness * error + guide.weight * pull), (after, None)

        policy, state, loss, _ = self.minimize(loss_of, learner.policy, states["policy"])
        learner = learner._replace(policy=policy, optimizers={**states, "policy": state})
        return self.follow_targets(learner), Metrics(loss)

    def follow_targets(self, learner):
        online = {"policy": learner.policy, "value": learner.value}
        return learner._replace(targets=follow(learner.targets, online, self.target_rate))

    def distance_between(self, policy, other, observation):
        actions = (deterministic_action(each, observation) for each in (policy, other))
        return squared_distance(*actions, "sum")
