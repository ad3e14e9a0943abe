"""Experience-sharing only, ESO (Section 4.2): N learners, one replay, nothing else in common.

    every step: each learner acts in its own environment copy, stores into the common replay,
                and updates on its own minibatch from it

This is P3S without guidance, exactly: it runs the same compiled update with a pull of weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p3s.schemes.base import StepScheme


@dataclass(frozen=True, kw_only=True)
class Sharing(StepScheme):
    """N learners share one replay and nothing else."""

    name: ClassVar[str] = "sharing"
