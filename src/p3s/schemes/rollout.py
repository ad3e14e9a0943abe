"""An on-policy algorithm: one learner that learns from its own whole rollouts.

    every step: act, store into the rollout
    when it is full: one update over all of it, and it is discarded

There is no replay to share, so on-policy algorithms have no place in the other schemes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from p3s import keys
from p3s.algorithms.on_policy import OnPolicy
from p3s.fields.types import Count
from p3s.learning.learners import init_learners
from p3s.learning.rhythm import FullRollout, Rhythm
from p3s.schemes.base import PopulationState, Scheme
from p3s.types import EnvSpec, Recorded, Rollout

NUM_RECENT = 10
"""Training returns of which the mean is reported."""


@dataclass(frozen=True, kw_only=True)
class OnPolicyRollout(Scheme):
    """One learner that learns from its own rollouts: PPO, ACKTR."""

    name: ClassVar[str] = "rollout"
    is_alone: ClassVar[bool] = True

    num_learners: Count = 1
    """Always 1."""

    def rhythm(self) -> Rhythm:
        assert isinstance(self.algorithm, OnPolicy)
        return FullRollout(self.algorithm)

    @property
    def num_recent(self) -> int:
        return NUM_RECENT

    def with_policy(self, update: int, position: int, backlog: int) -> bool:
        return True

    def init(self, key: jax.Array, spec: EnvSpec) -> PopulationState:
        learners = init_learners(self.algorithm, key, spec, 1, identical=True)
        return PopulationState(learners, jnp.arange(1))

    def learn(
        self, state: Any, batches: Rollout, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Recorded]:
        """One update of the learner on its whole rollout."""
        assert isinstance(self.algorithm, OnPolicy)
        learner_keys = keys.per_learner(key, state.indices)
        learners, metrics = jax.vmap(self.algorithm.improve)(state.learners, batches, learner_keys)
        return state._replace(learners=learners), metrics
