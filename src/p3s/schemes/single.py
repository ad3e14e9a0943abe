"""The base algorithm alone: one learner, one environment, its own replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p3s.field_types import Count
from p3s.schemes.sharing import Sharing


@dataclass(frozen=True, kw_only=True)
class Single(Sharing):
    """One learner: the base algorithm as it is."""

    name: ClassVar[str] = "single"

    num_learners: Count = 1
    """Always 1."""

    def problem(self) -> str | None:
        if self.num_learners != 1:
            return (
                f"scheme single has one learner, not {self.num_learners}: "
                "leave num_learners out, or choose scheme sharing or p3s"
            )
        return super().problem()
