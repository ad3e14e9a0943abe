"""An on-policy algorithm alone: one learner that learns from whole rollouts of its own.

    every step: act, store into the rollout
    when it is full: one update over all of it, and it is thrown away

It goes by the name `single`: `config.py` takes it where the algorithm is an on-policy one. There
is no replay to share, so no other scheme has any use for such an algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax

from p3s import keys
from p3s.algorithms.on_policy import OnPolicy
from p3s.learning.learners import init_learners
from p3s.learning.rhythm import Rhythm, RolloutRhythm
from p3s.schemes.base import PopulationState, Scheme
from p3s.types import EnvSpec, Metrics, Rollout


@dataclass(frozen=True, kw_only=True)
class OnPolicySingle(Scheme):
    """One learner: the base algorithm as it is."""

    name: ClassVar[str] = "single"
    paper_name: ClassVar[str] = "original algorithm (Section 4.2)"
    # A class variable is no field: random steps would not be the policy's own.
    initial_steps: ClassVar[int] = 0  # type: ignore[reportIncompatibleVariableOverride]

    num_learners: int = 1
    """Always 1."""

    def problem(self) -> str | None:
        if self.num_learners != 1:
            name = self.algorithm.name
            return f"{name} learns alone: leave num_learners out, or take another --algorithm"
        return super().problem()

    def rhythm(self) -> Rhythm:
        assert isinstance(self.algorithm, OnPolicy)
        return RolloutRhythm(self.algorithm)

    @property
    def num_recent(self) -> int:
        return 10

    def with_policy(self, update: int, position: int, backlog: int) -> bool:
        return True

    def init(self, key: jax.Array, spec: EnvSpec) -> Any:
        return PopulationState(init_learners(self.algorithm, key, spec, 1, identical=True))

    def learn(
        self, state: Any, batches: Any, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Metrics]:
        """One update on a whole rollout of each learner."""
        assert isinstance(self.algorithm, OnPolicy)
        rollouts: Rollout = batches
        learner_keys = keys.per_learner(key, self.num_trained)
        learners, metrics = jax.vmap(self.algorithm.improve)(state.learners, rollouts, learner_keys)
        return state._replace(learners=learners), metrics
