"""CrossQ with a deterministic policy (Bhatt et al. 2024): TD3 without target networks.

    value step    a' = clip(pi(s') + clip(N(0, s~²), -c, c), -1, 1), pi in evaluation mode
                  q, q' = Q_j([s; s'], [a; a'])      one pass in training mode over both halves
                  y = r + discount * gamma * min_j q'_j                           without gradient
                  minimize sum_j ½ mean (y - q_j)²
    policy step   at every third update, with pi in training mode and Q in evaluation mode
                  minimize mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))

`crossq.py` says why it works without targets, and how it differs from the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.crossq import CODE
from p3s.algorithms.off_policy import bootstrap
from p3s.algorithms.parts.deterministic import (
    DeterministicPolicy,
    TargetNoise,
    deterministic_action,
)
from p3s.algorithms.parts.joint_batch import joint_value_loss
from p3s.fields.layers import Layer
from p3s.fields.types import Count, Decay, Sizes
from p3s.types import Learner, Metrics, Transition


@dataclass(frozen=True, kw_only=True)
class CrossQTD3(TargetNoise, DeterministicPolicy):
    """Twin delayed policy gradient with batch normalization and without targets."""

    name: ClassVar[str] = "crossq_td3"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("CrossQ's code", CODE),)

    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    batch_size: Count = 256
    """Transitions in a minibatch (B)."""
    adam_momentum: Decay = 0.5
    """Share of its running mean of gradients that Adam keeps at a step (β1)."""
    policy_period: Count = 3
    """Value updates per policy update."""
    network: str = "batch_renorm"
    """batch_renorm; any other network would need targets."""

    def value_step(
        self, learner: Learner, batch: Transition, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        noise = self.draw_target_noise(key, batch.action.shape)
        action = deterministic_action(learner.policy, batch.next_observation) + noise

        def target_of(ahead: jax.Array) -> jax.Array:
            next_value = self.combine(ahead, jax.random.fold_in(key, 1))
            return bootstrap(batch, self.discount_factor, next_value)

        loss_of = partial(
            joint_value_loss,
            batch=batch,
            next_action=jnp.clip(action, -1.0, 1.0),
            target_of=target_of,
        )
        value, state, loss, target = self.minimize(
            loss_of, learner.value, learner.optimizers["value"]
        )
        optimizers = {**learner.optimizers, "value": state}
        metrics = Metrics(loss, target_mean=target)
        return learner._replace(value=value, optimizers=optimizers), metrics
