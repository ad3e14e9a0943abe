"""Final performance of one method on one environment, over seeds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from p3s.report import statistics
from p3s.report.curves import MEASURES, series
from p3s.report.results import Results, RunResult
from p3s.report.scales import Scale, final_value
from p3s.report.statistics import Interval


@dataclass(frozen=True)
class Measured:
    """One measure over seeds."""

    values: np.ndarray
    mean: float
    deviation: float
    interval: Interval


@dataclass(frozen=True)
class Cell:
    """A method's final performance on an environment."""

    method: str
    env: str
    seeds: list[int]
    measures: dict[str, Measured]
    iqm: float
    area: Measured
    reached: list[float]
    """Steps to the threshold, per seed; infinity for a seed that never reached it."""
    num_learners: int
    paper: float | None
    best_of: dict[str, float] = field(default_factory=dict)

    @property
    def score(self) -> Measured:
        """The paper's number: the maximum over learners."""
        return self.measures["score"]

    @property
    def median_reached(self) -> float:
        """Median steps to the threshold over seeds."""
        return float(np.median(self.reached))


def measure(values: np.ndarray, rng: np.random.Generator) -> Measured:
    """Mean, standard deviation and interval over the seeds that have a value."""
    values = values[~np.isnan(values)]
    if not values.size:
        return Measured(values, np.nan, np.nan, statistics.UNKNOWN)
    interval = statistics.mean_interval([values], rng)
    deviation = statistics.standard_deviation(values)
    return Measured(values, float(values.mean()), deviation, interval)


def make_cell(runs: list[RunResult], scale: Scale, rng: np.random.Generator) -> Cell:
    """The final performance of a method's runs on an environment."""
    measures = {
        name: measure(np.array([final_value(run, key, scale.step) for run in runs]), rng)
        for name, key in MEASURES.items()
    }
    areas, reached = [], []
    for run in runs:
        steps, scores = series(run, "step"), series(run, "score")
        within = steps <= scale.step
        areas.append(statistics.area_under_curve(steps[within], scores[within]))
        reached.append(statistics.steps_to_threshold(steps, scores, scale.threshold))
    return Cell(
        method=runs[0].method,
        env=runs[0].env,
        seeds=[run.seed for run in runs],
        measures=measures,
        iqm=float(statistics.iqm([measures["score"].values])),
        area=measure(np.array(areas), rng),
        reached=reached,
        num_learners=max(run.num_learners for run in runs),
        paper=runs[0].paper,
    )


def with_best_of(
    cells: dict[tuple[str, str], Cell], results: Results, scales: dict[str, Scale]
) -> dict[tuple[str, str], Cell]:
    """Add the expected best of N independent runs to the methods with one learner.

    N is the largest population on the environment. `full` gives each run all steps, N times the
    population's budget; `equal` gives it an N-th of the steps, the same budget.
    """
    added = dict(cells)
    for (method, env), cell in cells.items():
        largest = max(other.num_learners for other in cells.values() if other.env == env)
        if cell.num_learners != 1 or largest == 1 or len(cell.seeds) < largest:
            continue
        step = scales[env].step
        runs = [run for run in results.select(method, env) if run.last_step >= step]
        full = np.array([final_value(run, "score", step) for run in runs])
        equal = np.array([final_value(run, "score", step / largest) for run in runs])
        equal = equal[~np.isnan(equal)]
        best_of = {
            "count": float(largest),
            "full": statistics.expected_maximum(full, largest),
            "equal": statistics.expected_maximum(equal, largest),
        }
        added[method, env] = replace(cell, best_of=best_of)
    return added
