"""An algorithm from outside the package: AWAC in its simplest form (after Nair et al. 2020).

value step    y = r + discount * gamma * Q'(s', pi'(s'));  minimise mean (y - Q(s, a))²
policy step   w = min(exp((Q(s, a) - Q(s, pi(s))) / temperature), 20)
              minimise mean(w * ½‖pi(s) - a‖²) + weight * D(pi, guide),  then targets follow
p3s train Pendulum-v1 --algorithm examples.awac:AWAC --steps 20000
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s import register
from p3s.algorithms.off_policy import OffPolicy, bootstrap, q_values, value_loss
from p3s.algorithms.parts.deterministic import deterministic_action, squared_distance
from p3s.networks import follow
from p3s.types import Learner


@register
@dataclass(frozen=True, kw_only=True)
class AWAC(OffPolicy):
    """Imitate the replay's actions, the better the more."""

    name: ClassVar[str] = "awac"
    actions: ClassVar = "continuous"

    exploration_noise: float = 0.3
    """Standard deviation of the noise on actions in training."""
    temperature: float = 1.0
    """How much better an action must be to count e times as much."""

    def init(self, key, spec):
        policy_key, value_key = jax.random.split(key)
        policy = self.init_network(policy_key, [spec.observation_size], spec.action_size)
        value = self.init_q_networks(jax.random.split(value_key, 1), spec)
        extra = {"target_policy": policy, "target_value": value}
        extra["policy_optimizer"] = self.start_optimizer(policy)
        extra["value_optimizer"] = self.start_optimizer(value)
        return Learner(policy, value, extra)

    def act(self, policy, observation, key, *, explore):
        action = deterministic_action(policy, observation)
        noise = self.exploration_noise * jax.random.normal(key, action.shape) if explore else 0.0
        return jnp.clip(action + noise, -1, 1)

    def value_step(self, learner, batch, key):
        extra, seen = learner.extra, batch.next_observation
        action = deterministic_action(extra["target_policy"], seen)
        target = bootstrap(batch, self.discount, q_values(extra["target_value"], seen, action)[0])
        loss, gradient = jax.value_and_grad(value_loss)(learner.value, batch, target)
        value, state = self.descend(learner.value, gradient, extra["value_optimizer"])
        return Learner(learner.policy, value, {**extra, "value_optimizer": state}), {"q_loss": loss}

    def policy_step(self, learner, batch, guide, key):
        seen, extra = batch.observation, learner.extra
        gain = q_values(learner.value, seen, batch.action)[0]
        gain -= q_values(learner.value, seen, deterministic_action(learner.policy, seen))[0]
        goodness = jnp.minimum(jnp.exp(gain / self.temperature), 20.0)

        def loss_of(policy):
            error = squared_distance(deterministic_action(policy, seen), batch.action, "sum")
            pull = self.distance(policy, guide.policy, seen)
            return jnp.mean(goodness * error + guide.weight * pull)

        loss, gradient = jax.value_and_grad(loss_of)(learner.policy)
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        learner = Learner(policy, learner.value, {**extra, "policy_optimizer": state})
        return self.follow_targets(learner), {"policy_loss": loss}

    def follow_targets(self, learner):
        online = {"target_policy": learner.policy, "target_value": learner.value}
        targets = follow({name: learner.extra[name] for name in online}, online, self.target_rate)
        return learner._replace(extra={**learner.extra, **targets})

    def distance(self, policy, other, observation):
        action, other_action = (deterministic_action(p, observation) for p in (policy, other))
        return squared_distance(action, other_action, "sum")
