"""The training returns that the chief looks at: the last few of each environment copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.types import Episode


class RecentReturns:
    """The last E_r returns per copy, oldest first; NaN where there are fewer."""

    def __init__(self, num_copies: int, num_recent: int) -> None:
        self.values = np.full((num_copies, num_recent), np.nan)

    def add(self, episode: Episode) -> None:
        """Count a finished episode."""
        own = self.values[episode.learner]
        own[:-1] = own[1:]
        own[-1] = episode.total

    def forget(self, learners: list[int]) -> None:
        """Drop the returns of these learners."""
        self.values[learners] = np.nan

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        return {"values": self.values}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.values = values["values"].copy()
