"""What learning reports between two rows of metrics.jsonl."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.errors import TrainingStopped
from p3s.learning.counters import Counters
from p3s.types import Episode


class MetricsWindow:
    """Sums of metrics, and training episodes, since the last row of metrics.jsonl."""

    def __init__(self) -> None:
        self.stops = True
        """Whether a non-finite number stops the run; otherwise it is a gap in the records."""
        self.clear()

    def clear(self) -> None:
        """Begin anew, after a row was written."""
        self.sums: dict[str, np.ndarray] = {}
        self.counts: dict[str, int] = {}
        self.episodes: list[list[Any]] = []
        self.lost: list[int] = []

    def add(self, names: tuple[str, ...], values: np.ndarray) -> None:
        """Count one update's metrics, (metrics, learners); a non-finite one may stop the run."""
        finite = np.isfinite(values)
        if self.stops and not finite.all():
            metric, learner = np.argwhere(~finite)[0]
            value = values[metric, learner]
            raise TrainingStopped(f"the {names[metric]} of learner {learner} is {value}")
        for name, row in zip(names, values.astype(np.float64), strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + row
            self.counts[name] = self.counts.get(name, 0) + 1

    def add_episode(self, episode: Episode) -> None:
        """Note a finished training episode."""
        self.episodes.append(list(episode))

    def add_lost(self, learners: list[int]) -> None:
        """Note training episodes that broke off without an end."""
        self.lost += learners

    def means(self) -> dict[str, list[float]]:
        """Each metric's mean since the last row, for each learner."""
        return {name: (total / self.counts[name]).tolist() for name, total in self.sums.items()}

    def row(self, counters: Counters, recent_returns: list[float]) -> dict[str, Any]:
        """One row of metrics.jsonl; the window begins anew."""
        seconds = max(counters.seconds, 1e-9)
        row = {
            "step": counters.total_steps,
            "updates": counters.total_updates,
            "seconds": round(seconds, 3),
            "steps_per_second": round(counters.total_steps / seconds, 1),
            "recent_returns": recent_returns,
            "episodes": self.episodes,
            "learners": self.means(),
            **({"lost_episodes": self.lost} if self.lost else {}),
        }
        self.clear()
        return row

    def snapshot(self) -> dict[str, Any]:
        """Values from which `resume` continues."""
        sums = {name: total.tolist() for name, total in self.sums.items()}
        return {"sums": sums, "counts": self.counts, "episodes": self.episodes, "lost": self.lost}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.sums = {name: np.asarray(total) for name, total in values["sums"].items()}
        self.counts, self.episodes = dict(values["counts"]), list(values["episodes"])
        self.lost = list(values.get("lost", ()))
