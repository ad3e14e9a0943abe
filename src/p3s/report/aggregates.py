"""Numbers over all environments: aggregates of each method, and every method against every other.

Environments count where every method has finished runs and the scale has range (scales.py). Every
number comes with its range when any one environment is left out. Comparisons are decided by the
exact permutation test of the champions' returns, with Holm's correction for all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from p3s.report import statistics
from p3s.report.formatting import first_names
from p3s.report.performance import Cell
from p3s.report.results import Results
from p3s.report.scales import Scale
from p3s.report.statistics import Interval, LowerTail, Strata

PROFILE_POINTS = 101
Cells = dict[tuple[str, str], Cell]
Scales = dict[str, Scale]


@dataclass(frozen=True)
class Estimate:
    """A number over environments."""

    value: float
    interval: Interval
    left_out: Interval
    """Lowest and highest value when any one environment is left out."""


NO_ESTIMATE = Estimate(np.nan, statistics.UNKNOWN, statistics.UNKNOWN)


@dataclass(frozen=True)
class Aggregate:
    """A method's normalized scores over the environments that all methods share."""

    method: str
    iqm: Estimate
    champion_iqm: Estimate
    """Of the champions' returns, on the same scale; NaN where a run has none."""
    mean: Estimate
    gap: Estimate
    tail: LowerTail | None
    """Of the champions' returns: how bad unlucky seeds are; None where a run has no champion."""
    profile: np.ndarray


@dataclass(frozen=True)
class Improvement:
    """The probability that the champion of one method's run beats that of another's."""

    ours: str
    theirs: str
    chance: float
    interval: Interval
    left_out: Interval
    p_value: float
    """Of the exact permutation test, with Holm's correction for all pairs of methods."""
    verdict: str
    """`above`, `below` or `undecided`."""
    stands: bool | None
    """Whether the verdict stays whichever environment is left out; None if there is only one."""


@dataclass(frozen=True)
class Overall:
    """All numbers over environments."""

    envs: list[str]
    thresholds: np.ndarray
    aggregates: list[Aggregate]
    improvements: list[Improvement]


def methods_of(results: Results, cells: Cells) -> list[str]:
    """The methods with finished runs, in the report's order."""
    finished = {method for method, _ in cells}
    return [method for method in results.methods if method in finished]


def shared_environments(
    results: Results, scales: Scales, cells: Cells
) -> tuple[list[str], list[str]]:
    """The environments that count in numbers over all of them, and notes on the others."""
    methods = methods_of(results, cells)
    shared = [env for env in results.envs if all((method, env) in cells for method in methods)]
    lowest = {
        env: min(float(cells[method, env].score.values.min()) for method in methods)
        for env in shared
    }
    common = [env for env in shared if scales[env].has_range(lowest[env])]
    short = [env for env in shared if env not in common and scales[env].reference is not None]
    skipped = [env for env in results.envs if env not in common and env not in short]
    reasons = {
        "no score is far enough above an idle or random policy": short,
        "a method has no finished run there or all scores are equal": skipped,
    }
    notes = [
        f"left out of the numbers over all environments, because {why}: {first_names(envs)}"
        for why, envs in reasons.items()
        if envs
    ]
    return common, notes


def combine(
    results: Results, scales: Scales, cells: Cells, rng: np.random.Generator
) -> tuple[Overall, list[str]]:
    """All numbers over environments, and notes on what is missing."""
    common, notes = shared_environments(results, scales, cells)
    if not common:
        return Overall([], np.zeros(0), [], []), notes
    methods = methods_of(results, cells)
    strata, champions = (
        {
            method: [
                scales[env].normalize(cells[method, env].measures[measure].values) for env in common
            ]
            for method in methods
        }
        for measure in ("score", "champion")
    )
    if any(values.size == 0 for own in champions.values() for values in own):
        champions = {}
        notes.append("no probability of improvement: some runs have no champion yet")
    thresholds = _thresholds(strata)
    tails = lower_tails(champions)
    aggregates = [
        Aggregate(
            method=method,
            iqm=_estimate(statistics.iqm, strata[method], rng),
            champion_iqm=_estimate(statistics.iqm, champions.get(method, []), rng),
            mean=_estimate(statistics.mean, strata[method], rng),
            gap=_estimate(
                statistics.optimality_gap,
                _published([(cells[method, env], scales[env]) for env in common]),
                rng,
            ),
            tail=tails.get(method),
            profile=statistics.performance_profile(strata[method], thresholds),
        )
        for method in methods
    ]
    return Overall(common, thresholds, aggregates, compare(champions, rng)), notes


def _thresholds(strata: dict[str, list[np.ndarray]]) -> np.ndarray:
    """Where performance profiles are drawn: over all scores, and from 0 to 1 at least."""
    scores = np.concatenate([np.concatenate(own) for own in strata.values()])
    return np.linspace(min(0.0, scores.min()), max(1.0, scores.max()), PROFILE_POINTS)


def _estimate(
    statistic: Callable[[Strata], np.ndarray], strata: list[np.ndarray], rng: np.random.Generator
) -> Estimate:
    if not strata:
        return NO_ESTIMATE
    if statistic is statistics.mean:
        interval = statistics.mean_interval(strata, rng)
    else:
        interval = statistics.percentile_interval(statistic, strata, rng)
    left_out = statistics.leave_one_out(statistic, strata)
    return Estimate(float(statistic(strata)), interval, left_out)


def _published(cells: list[tuple[Cell, Scale]]) -> list[np.ndarray]:
    """Scores as parts of the method's published score, where that is above the low end."""
    found = []
    for cell, scale in cells:
        low = 0.0 if scale.reference is None else scale.low
        if cell.paper is not None and cell.paper > low:
            found.append((cell.score.values - low) / (cell.paper - low))
    return found


def lower_tails(returns: dict[str, list[np.ndarray]]) -> dict[str, LowerTail]:
    """How bad each method's unlucky seeds are, against the median of all methods' runs."""
    medians = [float(np.median(np.concatenate(env))) for env in zip(*returns.values(), strict=True)]
    return {method: statistics.lower_tail(own, medians) for method, own in returns.items()}


def compare(returns: dict[str, list[np.ndarray]], rng: np.random.Generator) -> list[Improvement]:
    """Every method against every other, by normalized returns: a list of seeds per environment."""
    pairs = [(returns[ours], returns[theirs]) for ours, theirs in combinations(returns, 2)]
    if not pairs:
        return []
    envs = range(len(pairs[0][0]))
    p_values, verdicts = _judge(pairs, envs, rng)
    others = [
        _judge(pairs, [env for env in envs if env != left], rng)[1]
        for left in (envs if len(envs) > 1 else [])
    ]
    found = []
    for index, (ours, theirs) in enumerate(combinations(returns, 2)):
        mine, other = pairs[index]
        chance = float(statistics.probability_of_improvement(mine, other))
        interval = statistics.improvement_interval(mine, other, rng)
        left_out = statistics.leave_one_out(statistics.probability_of_improvement, mine, other)
        verdict, p_value = verdicts[index], p_values[index]
        stands = all(own[index] == verdict for own in others) if others else None
        back = {"above": "below", "below": "above"}.get(verdict, verdict)
        found += [
            Improvement(ours, theirs, chance, interval, left_out, p_value, verdict, stands),
            Improvement(
                theirs, ours, 1 - chance, _mirrored(interval), _mirrored(left_out), p_value, back,
                stands,
            ),
        ]  # fmt: skip
    return found


def _judge(
    pairs: list[tuple[list[np.ndarray], list[np.ndarray]]],
    envs: Sequence[int],
    rng: np.random.Generator,
) -> tuple[list[float], list[str]]:
    """Corrected p-values and verdicts of all pairs in these environments."""
    chosen = [([mine[env] for env in envs], [other[env] for env in envs]) for mine, other in pairs]
    p_values = statistics.holm([statistics.permutation_p(*pair, rng) for pair in chosen])
    verdicts = [
        statistics.verdict(float(statistics.probability_of_improvement(*pair)), p_value)
        for pair, p_value in zip(chosen, p_values, strict=True)
    ]
    return p_values, verdicts


def _mirrored(interval: Interval) -> Interval:
    return Interval(1 - interval.high, 1 - interval.low)
