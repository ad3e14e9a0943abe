"""The numbers of a report: final performance, aggregates over environments, comparisons.

A run's final performance is the mean of its last evaluations (a tenth of them, at most ten) up to
the step that all complete runs on its environment have reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from p3s.report import statistics
from p3s.report.curves import MEASURES, series
from p3s.report.formatting import first_names
from p3s.report.references import Reference
from p3s.report.results import Results, RunResult
from p3s.report.statistics import Interval

THRESHOLD_FRACTION = 0.8
"""Where the threshold of "steps to threshold" lies between the lowest and the best score."""
PROFILE_POINTS = 101
LEAST_RANGE = 0.25
"""Least part of the range of scores that may lie above the reference policies: on a shorter scale,
scores below them would be huge negative numbers."""


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


@dataclass(frozen=True)
class Aggregate:
    """A method's normalized scores over the environments that all methods share."""

    method: str
    iqm: float
    iqm_interval: Interval
    champion_iqm: float
    """Of the champions' returns, on the same scale; NaN where a run has none."""
    champion_iqm_interval: Interval
    mean: float
    mean_interval: Interval
    gap: float
    gap_interval: Interval
    profile: np.ndarray


@dataclass(frozen=True)
class Improvement:
    """The probability that the champion of one method's run beats that of another's."""

    ours: str
    theirs: str
    chance: float
    interval: Interval


@dataclass(frozen=True)
class Summary:
    """All numbers of a report."""

    scales: dict[str, Scale]
    cells: dict[tuple[str, str], Cell]
    thresholds: np.ndarray
    aggregates: list[Aggregate]
    improvements: list[Improvement]
    notes: list[str]

    def best(self, env: str) -> str | None:
        """The method with the highest mean score on an environment.

        None if there is only one, or if a policy that learns nothing earns more than all of them.
        """
        here = [cell for cell in self.cells.values() if cell.env == env]
        highest = max(here, key=lambda cell: cell.score.mean)
        alone = len(here) == 1 or math.isnan(highest.score.mean)
        return None if alone or self.unbeaten(env) is not None else highest.method

    def unbeaten(self, env: str) -> str | None:
        """The policy that learns nothing and earns more than every method, if one does."""
        reference = self.scales[env].reference
        if reference is None:
            return None
        scores = [cell.score.mean for cell in self.cells.values() if cell.env == env]
        earned = reference.means[reference.best]
        return None if any(score >= earned for score in scores) else reference.best


def final_step(runs: list[RunResult]) -> int:
    """The step that all complete runs have reached, or all runs if none is complete."""
    return min(run.last_step for run in [run for run in runs if run.complete] or runs)


def final_value(run: RunResult, key: str, step: float) -> float:
    """Mean of the last evaluations up to a step; NaN if there are none."""
    values = series(run, key)[series(run, "step") <= step]
    last = values[-min(10, max(1, len(values) // 10)) :]
    return float(np.nanmean(last)) if last.size and not np.isnan(last).all() else np.nan


def measure(values: np.ndarray, rng: np.random.Generator) -> Measured:
    """Mean, standard deviation and interval over the seeds that have a value."""
    values = values[~np.isnan(values)]
    if not values.size:
        return Measured(values, np.nan, np.nan, statistics.UNKNOWN)
    interval = statistics.mean_interval([values], rng)
    deviation = statistics.standard_deviation(values)
    return Measured(values, float(values.mean()), deviation, interval)


def summarize(results: Results, rng: np.random.Generator) -> Summary:
    """Compute all numbers of a report."""
    scales, cells, notes = {}, {}, []
    for env in results.envs:
        runs = results.select(env=env)
        step = final_step(runs)
        short = [run for run in runs if run.last_step < step]
        if short:
            names = [f"{run.method} seed {run.seed} ({run.last_step:,})" for run in short]
            notes.append(
                f"{env}: final numbers are taken at {step:,} steps; runs that ended earlier "
                f"appear in the curves only: {first_names(names)}"
            )
        reaching = [run for run in runs if run.last_step >= step]
        scales[env] = _scale(env, step, reaching, results.references.get(env))
        for method in results.methods:
            own = [run for run in reaching if run.method == method]
            if own:
                cells[method, env] = _cell(own, scales[env], rng)
    cells = _with_best_of(cells, results, scales)
    thresholds, aggregates, improvements = _over_environments(results, scales, cells, rng, notes)
    return Summary(scales, cells, thresholds, aggregates, improvements, notes)


def _scale(env: str, step: int, runs: list[RunResult], reference: Reference | None) -> Scale:
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


def _cell(runs: list[RunResult], scale: Scale, rng: np.random.Generator) -> Cell:
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


def _with_best_of(
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


def _has_range(scale: Scale, cells: list[Cell]) -> bool:
    """Whether enough of the scores' range lies above the low end to normalize by it."""
    if scale.reference is None or scale.high <= scale.low:
        return scale.high > scale.low
    lowest = min(float(cell.score.values.min()) for cell in cells)
    return scale.high - scale.low >= LEAST_RANGE * (scale.high - lowest)


def _normalized(cell: Cell, scale: Scale, measure: str) -> np.ndarray:
    return (cell.measures[measure].values - scale.low) / (scale.high - scale.low)


def _over_environments(
    results: Results,
    scales: dict[str, Scale],
    cells: dict[tuple[str, str], Cell],
    rng: np.random.Generator,
    notes: list[str],
) -> tuple[np.ndarray, list[Aggregate], list[Improvement]]:
    """Aggregates over the environments where every method has runs."""
    methods = [method for method in results.methods if any(key[0] == method for key in cells)]
    shared = [env for env in results.envs if all((method, env) in cells for method in methods)]
    common = [
        env for env in shared if _has_range(scales[env], [cells[method, env] for method in methods])
    ]
    short = [env for env in shared if env not in common and scales[env].reference is not None]
    if short:
        notes.append(
            "left out of the numbers over all environments, because no score is far enough above "
            f"an idle or random policy: {first_names(short)}"
        )
    skipped = [env for env in results.envs if env not in common and env not in short]
    if skipped:
        notes.append(
            "left out of the numbers over all environments, because a method has no finished run "
            f"there or all scores are equal: {first_names(skipped)}"
        )
    if not common:
        return np.zeros(0), [], []
    strata, champions = (
        {
            method: [_normalized(cells[method, env], scales[env], measure) for env in common]
            for method in methods
        }
        for measure in ("score", "champion")
    )
    if any(own.size == 0 for method in methods for own in champions[method]):
        champions = {method: [np.zeros(0)] for method in methods}
        notes.append("no probability of improvement: some runs have no champion yet")
    everything = np.concatenate([np.concatenate(own) for own in strata.values()])
    thresholds = np.linspace(min(0.0, everything.min()), max(1.0, everything.max()), PROFILE_POINTS)
    aggregates = [
        _aggregate(
            method,
            strata[method],
            champions[method],
            [(cells[method, env], scales[env]) for env in common],
            thresholds,
            rng,
        )
        for method in methods
    ]
    improvements = []
    for ours, theirs in combinations(methods, 2):
        mine, other = champions[ours], champions[theirs]
        if mine[0].size == 0:
            break
        chance = float(statistics.probability_of_improvement(mine, other))
        low, high = statistics.improvement_interval(mine, other, rng)
        improvements.append(Improvement(ours, theirs, chance, Interval(low, high)))
        improvements.append(Improvement(theirs, ours, 1 - chance, Interval(1 - high, 1 - low)))
    return thresholds, aggregates, improvements


def _aggregate(
    method: str,
    strata: list[np.ndarray],
    champions: list[np.ndarray],
    cells: list[tuple[Cell, Scale]],
    thresholds: np.ndarray,
    rng: np.random.Generator,
) -> Aggregate:
    published = []
    for cell, scale in cells:
        low = 0.0 if scale.reference is None else scale.low
        if cell.paper is not None and cell.paper > low:
            published.append((cell.score.values - low) / (cell.paper - low))
    gap, gap_interval = np.nan, statistics.UNKNOWN
    if published:
        gap = float(statistics.optimality_gap(published))
        gap_interval = statistics.percentile_interval(statistics.optimality_gap, published, rng)
    return Aggregate(
        method=method,
        iqm=float(statistics.iqm(strata)),
        iqm_interval=statistics.percentile_interval(statistics.iqm, strata, rng),
        champion_iqm=float(statistics.iqm(champions)) if champions[0].size else np.nan,
        champion_iqm_interval=statistics.percentile_interval(statistics.iqm, champions, rng),
        mean=float(statistics.mean(strata)),
        mean_interval=statistics.mean_interval(strata, rng),
        gap=gap,
        gap_interval=gap_interval,
        profile=statistics.performance_profile(strata, thresholds),
    )
