"""CrossQ (Bhatt et al. 2024): SAC without target networks, by batch normalization.

    value step    a' ~ pi(s'), pi in evaluation mode
                  q, q' = Q_j([s; s'], [a; a'])      one pass in training mode over both halves
                  y = r + discount * gamma * (min_j q'_j - alpha log pi(a'|s'))    without gradient
                  minimize sum_j ½ mean (y - q_j)²
    policy step   at every third update: a ~ pi(s), pi in training mode
                  minimize mean(alpha log pi(a|s) - min_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  with Q in evaluation mode;  minimize alpha * (entropy of pi - target entropy)

All networks have batch renormalization (`networks/batch_renorm.py`). Without targets that lag
behind, Q follows the rewards faster, so that one update per step is enough. Adam keeps less of
past gradients than usual (b1 = 0.5), except for the temperature.

Differs from the authors' code (adityab/CrossQ) in: Qs of 256-256 instead of 2048-2048, which cost
a fiftieth; initial weights; the tanh correction, see `squashed_gaussian.py`. The authors' 5000
random steps, and their discount factor for Swimmer, are in the presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import bootstrap
from p3s.algorithms.parts.joint_batch import joint_value_loss
from p3s.algorithms.parts.soft_actor_critic import temperature
from p3s.algorithms.parts.soft_gaussian import SoftGaussian
from p3s.algorithms.parts.squashed_gaussian import gaussian, squashed_sample
from p3s.fields.layers import Layer, by_family
from p3s.fields.schedules import Rate
from p3s.fields.types import Count, Decay
from p3s.types import Learner, Metrics, Transition

CODE = {
    "initial_steps": lambda setting: setting.own_steps(5000),
    "discount_factor": by_family({"Swimmer": 0.9999}),
}


@dataclass(frozen=True, kw_only=True)
class CrossQ(SoftGaussian):
    """Soft actor-critic with batch normalization and without targets."""

    name: ClassVar[str] = "crossq"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", CODE),)
    temperature_loss: ClassVar[Literal["log_alpha", "alpha"]] = "alpha"

    learning_rate: Rate = 1e-3
    """Adam's step size."""
    adam_momentum: Decay = 0.5
    """Share of its running mean of gradients that Adam keeps at a step (β1)."""
    policy_period: Count = 3
    """Value updates per policy update."""
    network: str = "batch_renorm"
    """batch_renorm; any other network would need targets."""

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        distribution = gaussian(learner.policy, batch.next_observation)
        action, log_density = squashed_sample(distribution, noise)
        entropy = -temperature(learner) * log_density

        def target_of(ahead: jax.Array) -> jax.Array:
            next_value = self.combine(ahead, jax.random.fold_in(key, 1)) + entropy
            return bootstrap(batch, self.discount_factor, next_value)

        loss_of = partial(joint_value_loss, batch=batch, next_action=action, target_of=target_of)
        value, state, loss, target = self.minimize(
            loss_of, learner.value, learner.optimizers["value"]
        )
        optimizers = {**learner.optimizers, "value": state}
        metrics = Metrics(loss, target_mean=target)
        return learner._replace(value=value, optimizers=optimizers), metrics
