"""What all forms of soft actor-critic share: Qs, a stochastic policy, a learned temperature.

    value step    minimize sum_j ½ mean (y - Q_j(s, a))²;  targets <- (1 - tau) targets + tau online
    policy step   minimize the soft policy loss + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy), or alpha * (the same)

    LearnedTemperature   the policy step; `crossq` has it without targets
    SoftActorCritic      with targets: `sac` and its forms, `tqc`, `xqc`, `sac_discrete`

alpha grows while the policy is less random than its target entropy and shrinks otherwise (Haarnoja
et al. 2018b, Section 5). What is learned is log alpha. In the text, and in the codes of CrossQ and
XQC, the loss is linear in alpha, so that its gradient shrinks with alpha; in those of REDQ, TQC and
Stable-Baselines3 it is linear in log alpha. Each algorithm has the form of its own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from p3s.algorithms.off_policy import ActorCritic, Loss, WithTargets
from p3s.fields.types import Critics, Positive
from p3s.trees import follow
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition

ADAM_MOMENTUM = 0.9
"""Adam's own, for the temperature."""


@dataclass(frozen=True, kw_only=True)
class LearnedTemperature(ActorCritic):
    """Base of all soft actor-critics but the first, which differ in how Q is learned."""

    temperature_loss: ClassVar[Literal["log_alpha", "alpha"]] = "log_alpha"
    """What the entropy above its goal is multiplied by in the loss of the temperature."""

    num_critics: Critics = 2
    """Value networks; the smallest estimate counts, for targets and policy."""
    initial_temperature: Positive = 1.0
    """Weight of the entropy at the start (α)."""

    def init_policy(self, key: jax.Array, spec: EnvSpec) -> Params:
        """A network whose outputs are a distribution over actions."""
        raise NotImplementedError

    def policy_loss(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> Loss:
        """The policy's loss on a minibatch; with it the mean entropy and distance to the guide."""
        raise NotImplementedError

    def entropy_goal(self, learner: Learner, batch: Transition) -> jax.Array | float:
        """Entropy that the temperature aims at."""
        raise NotImplementedError

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        keys = jax.random.split(key, 1 + self.num_critics)
        policy, value = self.init_policy(keys[0], spec), self.init_q_networks(keys[1:], spec)
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        return Learner(
            policy=policy,
            value=value,
            targets={},
            optimizers={
                "policy": self.start_optimizer(policy),
                "value": self.start_optimizer(value),
                "temperature": self.start_optimizer(log_temperature),
            },
            extra={"log_temperature": log_temperature},
        )

    def policy_step(
        self, learner: Learner, batch: Transition, guide: Guide, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        loss_of = self.policy_loss(learner, batch, guide, key)
        policy, state, loss, (entropy, distance) = self.minimize_policy(loss_of, learner, guide)
        more = {"entropy": entropy, "temperature": temperature(learner)}
        metrics = Metrics(loss, guide_distance=distance, more=more)
        log_temperature, temperature_state = self._adapt_temperature(
            learner, entropy - self.entropy_goal(learner, batch)
        )
        learner = learner._replace(
            policy=policy,
            optimizers={**learner.optimizers, "policy": state, "temperature": temperature_state},
            extra={**learner.extra, "log_temperature": log_temperature},
        )
        return learner, metrics

    def _adapt_temperature(self, learner: Learner, excess: jax.Array) -> tuple[Params, Params]:
        """One step of log alpha, by the entropy above its goal."""
        linear = self.temperature_loss == "alpha"
        gradient = temperature(learner) * excess if linear else excess
        updates, state = self.at_policy_steps.adam(ADAM_MOMENTUM).update(
            gradient, learner.optimizers["temperature"]
        )
        return optax.apply_updates(learner.extra["log_temperature"], updates), state


@dataclass(frozen=True, kw_only=True)
class SoftActorCritic(LearnedTemperature, WithTargets):
    """Base of the soft actor-critics with targets of their Qs."""

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> Any:
        """y of a minibatch, in the form that `value_loss` takes."""
        raise NotImplementedError

    def target_mean(self, target: Any) -> jax.Array:
        """The mean of y, for the metrics."""
        return target.mean()

    def value_loss(
        self, values: Params, batch: Transition, target: Any, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        """Sum over j of ½ mean (y - Q_j(s, a))²; key: for networks with dropout."""
        raise NotImplementedError

    def init(self, key: jax.Array, spec: EnvSpec) -> Learner:
        learner = super().init(key, spec)
        return learner._replace(targets={"value": learner.value})

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        target = self.soft_target(learner, batch, key)
        loss_of = partial(self.value_loss, batch=batch, target=target, key=key)
        value, state, loss, _ = self.minimize(loss_of, learner.value, learner.optimizers["value"])
        followed = follow(learner.targets["value"], value, self.target_rate)
        learner = learner._replace(
            value=value,
            targets={**learner.targets, "value": followed},
            optimizers={**learner.optimizers, "value": state},
        )
        return learner, Metrics(loss, target_mean=self.target_mean(target))


def temperature(learner: Learner) -> jax.Array:
    """Weight of the entropy now (α)."""
    return jnp.exp(learner.extra["log_temperature"])
