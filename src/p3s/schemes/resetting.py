"""Resetting, Re (Section 4.2): the best policy is copied to all others every M' own steps.

    every step:   as in experience sharing
    every M' own steps, the chief
        b     <- the learner with the highest mean of its last E_r returns
        phi_i <- phi_b for all i

The text copies "the best learner's policy parameter": the value functions stay. It does not say
whether target policies and optimizer moments follow; `copied` names the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.field_types import Count
from p3s.schemes.base import PopulationState, StepScheme
from p3s.trees import pick
from p3s.types import EnvSpec


@dataclass(frozen=True, kw_only=True)
class Resetting(StepScheme):
    """The best policy is copied to all other learners now and then."""

    name: ClassVar[str] = "resetting"
    paper_name: ClassVar[str] = "Re, resetting (Section 4.2)"

    review_period: Count = 5000
    """Own steps of a learner between two copies (M')."""
    copied: Literal["policy", "policy_and_target", "policy_target_and_moments"] = "policy"
    """What the others take over from the best: its policy, its target policy too, or these and
    the moments of its policy's optimizer."""

    def problem(self) -> str | None:
        if self.num_learners < 2:
            return f"scheme resetting needs at least 2 learners, not {self.num_learners}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> PopulationState:
        state = super().init(key, spec)
        if self.copied != "policy" and "policy" not in state.learners.targets:
            raise UserError(f"{self.algorithm.name} has no target policy: choose --copied policy")
        return state

    def review(
        self,
        state: PopulationState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[PopulationState, dict[str, Any]]:
        best = self.best(recent_returns)
        if best is None:
            return state, {"best": None, "copied_to": []}

        def to_all(stacked: Any) -> Any:
            return jax.tree.map(
                lambda leaf, all_of_them: jnp.broadcast_to(leaf, all_of_them.shape).copy(),
                pick(stacked, best),
                stacked,
            )

        learners = state.learners
        policies = to_all(self.algorithm.policy_of(learners))
        learners = self.algorithm.with_policy(learners, policies)
        if self.copied != "policy":
            targets = {**learners.targets, "policy": to_all(learners.targets["policy"])}
            learners = learners._replace(targets=targets)
        if self.copied == "policy_target_and_moments":
            optimizers = {**learners.optimizers, "policy": to_all(learners.optimizers["policy"])}
            learners = learners._replace(optimizers=optimizers)
        others = [index for index in range(self.num_learners) if index != best]
        return state._replace(learners=learners), {"best": best, "copied_to": others}
