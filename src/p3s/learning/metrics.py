"""What learning reports between two rows of metrics.jsonl, and the names that it has there."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.algorithms import Algorithm
from p3s.errors import TrainingStopped, UserError
from p3s.types import Metrics, Recorded

Window = dict[str, Any]
"""Sums and counts of metrics by name: what a `MetricsWindow` holds."""
VALUE_LOSS, POLICY_LOSS = "value_loss", "policy_loss"


def recorded(metrics: Metrics, loss: str) -> Recorded:
    """The metrics of a step by name, without those that it does not have.

    loss: what its loss is called.
    """
    if not isinstance(metrics, Metrics):
        kind = type(metrics).__name__
        raise UserError(f"value_step and policy_step return p3s.types.Metrics, not a {kind}")
    values = {
        loss: metrics.loss,
        "target_mean": metrics.target_mean,
        "guide_distance": metrics.guide_distance,
        **(metrics.more or {}),
    }
    return {name: value for name, value in values.items() if value is not None}


def policy_loss_name(algorithm: Algorithm) -> str:
    """What the loss of its policy step is called: without a policy it is that of the values."""
    return POLICY_LOSS if algorithm.has_own_policy else VALUE_LOSS


class MetricsWindow:
    """Sums of metrics since the last row of metrics.jsonl.

    first: the first learner, where these are a part of the population.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self.stops = True
        """Whether a non-finite number stops the run; otherwise it is a gap in the records."""
        self.clear()

    def clear(self) -> None:
        """Begin anew, after a row was written."""
        self.sums: dict[str, np.ndarray] = {}
        self.counts: dict[str, int] = {}

    def add(self, names: tuple[str, ...], values: np.ndarray) -> None:
        """Count one update's metrics, (metrics, learners); a non-finite one may stop the run."""
        finite = np.isfinite(values)
        if self.stops and not finite.all():
            metric, learner = np.argwhere(~finite)[0]
            value = values[metric, learner]
            who = self._first + learner
            raise TrainingStopped(f"the {names[metric]} of learner {who} is {value}")
        for name, row in zip(names, values.astype(np.float64), strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + row
            self.counts[name] = self.counts.get(name, 0) + 1

    def add_series(self, name: str, values: np.ndarray) -> None:
        """Count one metric of several updates, (updates, learners), as `add` would in turn."""
        own = values.astype(np.float64)
        before = np.broadcast_to(self.sums.get(name, 0.0), own[:1].shape)
        # From left to right: `sum` may add in another order, which rounds differently.
        self.sums[name] = np.add.accumulate(np.concatenate([before, own]))[-1]
        self.counts[name] = self.counts.get(name, 0) + len(own)

    def means(self) -> dict[str, list[float]]:
        """Each metric's mean since the last row, for each learner."""
        return means_of(self.snapshot())

    def snapshot(self) -> Window:
        """Values from which `resume` continues."""
        sums = {name: total.tolist() for name, total in self.sums.items()}
        return {"sums": sums, "counts": dict(self.counts)}

    def resume(self, values: Window) -> None:
        """Continue from a snapshot."""
        self.sums = {name: np.asarray(total) for name, total in values["sums"].items()}
        self.counts = dict(values["counts"])


def means_of(window: Window) -> dict[str, list[float]]:
    """Each metric's mean, for each learner."""
    counts = window["counts"]
    return {name: [total / counts[name] for total in sums] for name, sums in window["sums"].items()}
