"""What `sac` and `sac_discrete` share: two Qs, targets that follow, and a learned temperature.

    value step    minimise sum_j ½ mean (y - Q_j(s, a))²;  targets <- (1 - tau) targets + tau online
    policy step   minimise the soft policy loss + weight * KL(pi ‖ guide)
                  minimise log alpha * (entropy of pi - target entropy)

alpha grows while the policy is less random than wanted and shrinks while it is more so (Haarnoja
et al. 2018b, Section 5). Differs from the text in one respect that has become usual: the loss is
linear in log alpha instead of in alpha, so that a step does not shrink with alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import OffPolicy
from p3s.networks import follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition

PolicyLoss = Callable[[Params], tuple[jax.Array, tuple[jax.Array, jax.Array]]]
"""Policy -> loss, (mean entropy, mean distance to the guide)."""


@dataclass(frozen=True, kw_only=True)
class SoftActorCritic(OffPolicy):
    """Base of both soft actor-critics, which differ in how a policy is a distribution."""

    initial_temperature: float = 1.0
    """Weight of the entropy at the start (α)."""

    def problem(self) -> str | None:
        if self.initial_temperature <= 0:
            return f"initial_temperature must be above 0, not {self.initial_temperature}"
        return super().problem()

    def init_policy(self, key: jax.Array, spec: EnvSpec) -> Params:
        """A network that gives a distribution over actions."""
        raise NotImplementedError

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> jax.Array:
        """y of a minibatch."""
        raise NotImplementedError

    def value_loss(self, values: Params, batch: Transition, target: jax.Array) -> jax.Array:
        """Sum over j of ½ mean (y - Q_j(s, a))²."""
        raise NotImplementedError

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> PolicyLoss:
        """The policy's loss on a minibatch as a function of its parameters."""
        raise NotImplementedError

    def wanted_entropy(self, learner: Learner, batch: Transition) -> jax.Array | float:
        """Entropy that the temperature aims at."""
        raise NotImplementedError

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 3)
        policy, value = self.init_policy(keys[0], spec), self.init_q_networks(keys[1:], spec)
        extra = {
            "target_value": value,
            **self.start_temperature(),
            "policy_optimizer": self.start_optimizer(policy),
            "value_optimizer": self.start_optimizer(value),
        }
        return Learner(policy, value, extra)

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        target = self.soft_target(learner, batch, key)
        loss, gradient = jax.value_and_grad(self.value_loss)(learner.value, batch, target)
        value, state = self.descend(learner.value, gradient, extra["value_optimizer"])
        extra = {
            **extra,
            "value_optimizer": state,
            "target_value": follow(extra["target_value"], value, self.target_rate),
        }
        metrics = {"value_loss": loss, "target_mean": target.mean()}
        return Learner(learner.policy, value, extra), metrics

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        extra = learner.extra
        loss_of = self.policy_loss(learner, batch, guide, key)
        (loss, (entropy, distance)), gradient = jax.value_and_grad(loss_of, has_aux=True)(
            learner.policy
        )
        policy, state = self.descend(learner.policy, gradient, extra["policy_optimizer"])
        wanted = self.wanted_entropy(learner, batch)
        metrics = {
            "policy_loss": loss,
            "guide_distance": distance,
            "entropy": entropy,
            "temperature": temperature(learner),
        }
        extra = {
            **extra,
            **self.adapt_temperature(extra, entropy, wanted),
            "policy_optimizer": state,
        }
        return Learner(policy, learner.value, extra), metrics

    def start_temperature(self) -> Params:
        """The temperature's entries of `extra` before the first update."""
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        return {
            "log_temperature": log_temperature,
            "temperature_optimizer": self.start_optimizer(log_temperature),
        }

    def adapt_temperature(
        self, extra: Params, entropy: jax.Array, target_entropy: jax.Array | float
    ) -> Params:
        """The same entries after one step."""
        gradient = entropy - target_entropy  # of the loss above, with respect to log alpha
        log_temperature, state = self.descend(
            extra["log_temperature"], gradient, extra["temperature_optimizer"]
        )
        return {"log_temperature": log_temperature, "temperature_optimizer": state}


def temperature(learner: Learner) -> jax.Array:
    """Weight of the entropy now (α)."""
    return jnp.exp(learner.extra["log_temperature"])
