"""A squashed Gaussian policy with a learned temperature: `sac` and its kin but the first."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from p3s.algorithms.parts.soft_actor_critic import LearnedTemperature, temperature
from p3s.algorithms.parts.squashed_gaussian import GaussianActorCritic
from p3s.types import Learner, Transition


@dataclass(frozen=True, kw_only=True)
class SoftGaussian(GaussianActorCritic, LearnedTemperature):
    """Base of the soft actor-critics for continuous actions."""

    target_entropy: float = -1.0
    """Entropy that the temperature aims at, per action dimension."""

    def entropy_weight(self, learner: Learner) -> jax.Array:
        return temperature(learner)

    def entropy_goal(self, learner: Learner, batch: Transition) -> float:
        return self.target_entropy * batch.action.shape[-1]
