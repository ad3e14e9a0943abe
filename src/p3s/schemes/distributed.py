"""Distributed RL, DRL (Section 4.2): one learner, N environment copies.

    every vector step: the one policy acts in N environment copies, with separate noise in each,
                       and stores N transitions; then the learner updates N times

So it has as many updates as environment steps, like a single learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from p3s.fields.layers import Layer, all_updates
from p3s.fields.types import Count, Ratio
from p3s.schemes.base import StepScheme


@dataclass(frozen=True, kw_only=True)
class Distributed(StepScheme):
    """One learner acts in N environment copies."""

    name: ClassVar[str] = "distributed"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("", {"updates_per_step": all_updates}),)

    can_be_split: ClassVar[bool] = False
    # A class variable is not a field: there is always one learner.
    num_learners: ClassVar[int] = 1  # type: ignore[reportIncompatibleVariableOverride]

    envs_per_learner: Count = 4
    """Environment copies of the one learner (N)."""
    updates_per_step: Count | Ratio | Literal["N"] = "N"
    """Updates of the learner per vector step: N, the number of environment copies."""
