"""Learning curves over seeds: mean and interval of every measure against steps, updates and time.

Evaluations are interpolated linearly to steps that all seeds of a method on an environment share.
Past the end of a seed the mean is over the remaining seeds; `counts` holds how many those are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.report.results import RunResult
from p3s.report.statistics import mean_intervals

MEASURES = {
    "score": "score",
    "champion": "champion_return",
    "chief": "chief_return",
    "mean": "mean",
}
"""The measures a curve can show, and their keys in evaluations.jsonl.

Older rows have no `chief_return`: their champion was the chief's pick."""

CURVE_RESAMPLES = 2000


@dataclass(frozen=True)
class Band:
    """One measure along a curve."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lines: np.ndarray
    """The curve of each seed, (seeds, points); NaN where it has no value."""


@dataclass(frozen=True)
class Curve:
    """A method's learning curve on an environment."""

    method: str
    env: str
    seeds: list[int]
    steps: np.ndarray
    updates: np.ndarray
    seconds: np.ndarray
    counts: np.ndarray
    bands: dict[str, Band]


def series(run: RunResult, key: str) -> np.ndarray:
    """One number from every evaluation; NaN where it is missing."""
    return _optional(run.evaluations, key)


def thin(count: int, most: int) -> np.ndarray:
    """Indices of at most `most` of `count` points, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def at_steps(run: RunResult, key: str, steps: np.ndarray) -> np.ndarray:
    """A run's values at these steps; NaN before its first and after its last evaluation."""
    own, values = series(run, "step"), series(run, key)
    known = ~np.isnan(values)
    if not known.any():
        return np.full(len(steps), np.nan)
    return np.interp(steps, own[known], values[known], left=np.nan, right=np.nan)


def method_curve(runs: list[RunResult], rng: np.random.Generator, points: int = 120) -> Curve:
    """The curve of one method's runs on one environment, with at most `points` points."""
    steps = np.unique(np.concatenate([series(run, "step") for run in runs]))
    steps = steps[thin(len(steps), points)]
    scores = np.stack([at_steps(run, "score", steps) for run in runs])
    counts = (~np.isnan(scores)).sum(axis=0)

    def average(key: str) -> np.ndarray:
        values = np.stack([at_steps(run, key, steps) for run in runs])
        known = ~np.isnan(values)
        return np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)

    bands = {}
    for measure, key in MEASURES.items():
        lines = np.stack([at_steps(run, key, steps) for run in runs])
        bands[measure] = band(lines, rng)
    # Seeds differ in speed: where a slow one ends, the mean time of the others would step back.
    seconds = np.maximum.accumulate(average("seconds"))
    return Curve(
        method=runs[0].method,
        env=runs[0].env,
        seeds=[run.seed for run in runs],
        steps=steps,
        updates=np.maximum.accumulate(average("updates")),
        seconds=seconds,
        counts=counts,
        bands=bands,
    )


def band(lines: np.ndarray, rng: np.random.Generator) -> Band:
    """Mean and interval at every point over the seeds that have a value there."""
    known = ~np.isnan(lines)
    mean, low, high = (np.full(lines.shape[1], np.nan) for _ in range(3))
    for present in np.unique(known, axis=1).T:
        here = (known == present[:, None]).all(axis=0)
        if present.any():
            values = lines[present][:, here]
            mean[here] = values.mean(axis=0)
            low[here], high[here] = mean_intervals([values], rng, resamples=CURVE_RESAMPLES)
    return Band(mean, low, high, lines)


def learner_lines(run: RunResult, points: int = 250) -> dict[str, Any]:
    """Mean return of every learner at every evaluation, for the page of a single run."""
    rows = [run.evaluations[index] for index in thin(len(run.evaluations), points)]
    learners = max(len(row["learner_returns"]) for row in rows)
    means = np.full((learners, len(rows)), np.nan)
    for column, row in enumerate(rows):
        for learner, returns in enumerate(row["learner_returns"]):
            means[learner, column] = np.mean(returns)
    return {
        "steps": np.array([row["step"] for row in rows], float),
        "updates": np.array([row["updates"] for row in rows], float),
        "seconds": np.array([row["seconds"] for row in rows], float),
        "learners": means,
        **{name: _optional(rows, f"{name}_return") for name in ("champion", "chief")},
    }


def _optional(rows: list[dict[str, Any]], key: str) -> np.ndarray:
    """One number per row; NaN where it is missing."""
    values = [row.get(key) for row in rows]
    return np.array([np.nan if value is None else value for value in values], float)
