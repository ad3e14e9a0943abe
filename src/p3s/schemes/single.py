"""The base algorithm alone: one learner, one environment, its own replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p3s.fields.types import Count
from p3s.schemes.sharing import Sharing


@dataclass(frozen=True, kw_only=True)
class Single(Sharing):
    """One learner: the base algorithm as it is."""

    name: ClassVar[str] = "single"
    is_alone: ClassVar[bool] = True
    has_own_code: ClassVar[bool] = True

    num_learners: Count = 1
    """Always 1."""
