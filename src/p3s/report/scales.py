"""The one scale on which returns of several environments are combined.

0 is the better of two policies that learn nothing, an idle and a random one; 1 is the highest
published score, or the best method's mean score. Without references, 0 is 0 with a published
score, else the lowest score. An environment where no score is far above 0 has no range, and
counts in no number over all environments.

A run's final performance is the mean of its last evaluations (a tenth of them, at most ten) up to
the step that all complete runs on its environment have reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.report.curves import series
from p3s.report.references import Reference
from p3s.report.results import RunResult

THRESHOLD_FRACTION = 0.8
"""Where the threshold of "steps to threshold" lies between the lowest and the best score."""
LEAST_RANGE = 0.25
"""Least part of the range of scores that may lie above the reference policies: on a shorter scale,
scores below them would be huge negative numbers."""


@dataclass(frozen=True)
class Scale:
    """The scores that become 0 and 1 when scores of several environments are combined."""

    env: str
    step: int
    low: float
    high: float
    source: str
    threshold: float
    reference: Reference | None = None
    """The policies that learn nothing; the better of them is the low end."""

    def normalize(self, values: np.ndarray) -> np.ndarray:
        """Scores or returns on this scale."""
        return (values - self.low) / (self.high - self.low)

    def has_range(self, lowest: float) -> bool:
        """Whether enough of the range above the lowest final score lies above the low end."""
        if self.reference is None or self.high <= self.low:
            return self.high > self.low
        return self.high - self.low >= LEAST_RANGE * (self.high - lowest)


def final_step(runs: list[RunResult]) -> int:
    """The step that all complete runs have reached, or all runs if none is complete."""
    return min(run.last_step for run in [run for run in runs if run.complete] or runs)


def final_value(run: RunResult, key: str, step: float) -> float:
    """Mean of the last evaluations up to a step; NaN if there are none."""
    values = series(run, key)[series(run, "step") <= step]
    last = values[-min(10, max(1, len(values) // 10)) :]
    return float(np.nanmean(last)) if last.size and not np.isnan(last).all() else np.nan


def make_scale(env: str, step: int, runs: list[RunResult], reference: Reference | None) -> Scale:
    """The scale of an environment, from the runs that reached its final step."""
    lowest = min(float(series(run, "score").min()) for run in runs)
    methods = dict.fromkeys(run.method for run in runs)
    best = max(
        float(np.mean([final_value(run, "score", step) for run in runs if run.method == method]))
        for method in methods
    )
    threshold = lowest + THRESHOLD_FRACTION * (best - lowest)
    published = [run.paper for run in runs if run.paper is not None]
    if reference is not None:
        low, high, top = reference.means[reference.best], best, "best score of these runs"
        if published and max(published) > low:
            high, top = max(published), "highest published score"
        source = f"{reference.best} policy; {top}"
        return Scale(env, step, low, high, source, threshold, reference)
    if published and max(published) > 0:
        return Scale(env, step, 0.0, max(published), "highest published score", threshold)
    return Scale(env, step, lowest, best, "lowest and best score of these runs", threshold)
