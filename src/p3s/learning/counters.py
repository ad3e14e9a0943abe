"""How far a run has come."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass
class Counters:
    """The numbers that a run counts."""

    time_step: int = 0
    """Steps of the group of environment copies."""
    total_steps: int = 0
    """Environment steps, over all copies."""
    updates: int = 0
    """Updates of the population; each learner that is trained takes part."""
    total_updates: int = 0
    """Updates of all learners together."""
    backlog: int = 0
    """Updates due before the next step, in schemes that learn between whole episodes."""
    backlog_done: int = 0
    seconds: float = 0.0
    """Time spent, over all processes that worked on the run."""

    def snapshot(self) -> dict[str, Any]:
        """Values from which `resume` continues."""
        return dataclasses.asdict(self)

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        for name, value in values.items():
            setattr(self, name, value)
