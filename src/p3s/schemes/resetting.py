"""Resetting, Re (Section 4.2): the best policy is copied to all others every M' own steps.

    every step:   as in experience sharing
    every M' own steps, the chief
        b     <- the learner with the highest mean of its last E_r returns
        phi_i <- phi_b for all i

The text copies "the best learner's policy parameter": the value functions stay. Whether target
policies and optimiser moments follow is not said; `copied` names the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.learning.learners import pick
from p3s.schemes.base import PopulationState, StepScheme
from p3s.types import EnvSpec

_FOLLOWING = {
    "policy": (),
    "policy_and_target": ("target_policy",),
    "policy_target_and_moments": ("target_policy", "policy_optimizer"),
}


@dataclass(frozen=True, kw_only=True)
class Resetting(StepScheme):
    """The best policy is copied to all other learners now and then."""

    name: ClassVar[str] = "resetting"
    paper_name: ClassVar[str] = "Re, resetting (Section 4.2)"

    review_period: int = 5000
    """Own steps of a learner between two copies (M')."""
    copied: Literal["policy", "policy_and_target", "policy_target_and_moments"] = "policy"
    """What the others take over from the best: its policy, its target policy too, or these and
    the moments of its policy's optimiser."""

    def problem(self) -> str | None:
        if self.num_learners < 2:
            return f"scheme resetting needs two learners at least, not {self.num_learners}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> PopulationState:
        state = super().init(key, spec)
        for name in _FOLLOWING[self.copied]:
            if name not in state.learners.extra:
                raise UserError(
                    f"{self.algorithm.name} has no {name} to copy: choose another --copied"
                )
        return state

    def review(
        self,
        state: PopulationState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        draw: np.random.Generator,
    ) -> tuple[PopulationState, dict[str, Any]]:
        best = self.best(recent_returns)
        if best is None:
            return state, {"best": None, "copied_to": []}

        def to_all(stacked: Any) -> Any:
            chosen = pick(stacked, best)
            return jax.tree.map(
                lambda leaf, all_of_them: jnp.broadcast_to(leaf, all_of_them.shape).copy(),
                chosen,
                stacked,
            )

        learners = state.learners
        extra = {
            name: to_all(value) if name in _FOLLOWING[self.copied] else value
            for name, value in learners.extra.items()
        }
        policies = to_all(self.algorithm.policy_of(learners))
        learners = self.algorithm.with_policy(learners, policies)._replace(extra=extra)
        others = [index for index in range(self.num_learners) if index != best]
        return state._replace(learners=learners), {"best": best, "copied_to": others}
