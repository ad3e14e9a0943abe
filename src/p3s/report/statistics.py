"""Statistics over seeds: estimates, and confidence intervals with the coverage they claim.

Seeds are the unit of replication. A sample is a list of strata, one array of seeds per
environment, and resampling stays within strata. The interval of a mean is a studentized bootstrap
(Efron and Tibshirani 1993, chapter 12.5); intervals of other statistics are percentile intervals,
widened for few seeds (Hesterberg 2015). The aggregates are those of Agarwal et al. 2021 ("Deep
RL at the edge of the statistical precipice"). Comparisons are decided by an exact permutation test,
corrected for their number.

    for every resample b: draw n seeds with replacement in each stratum
        t_b = (mean_b - mean) / max(error_b, floor * error)
    interval = mean - error * (97.5 % and 2.5 % quantiles of t_b)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Strata = Sequence[np.ndarray]

LEVEL = 0.95
RESAMPLES = 10_000
ERROR_FLOOR = 0.4
"""Smallest standard error of a resample, as a fraction of the sample's own. Without this floor,
resamples of a few nearly equal seeds can make the interval arbitrarily wide."""
MIN_BOOTSTRAP_FREEDOM = 3
"""With fewer degrees of freedom there is too little to resample: Student's t takes over."""
MIN_SEEDS = 4
"""Fewer seeds carry no interval in a single environment (docs/report.md has the simulation)."""
DECIDED = 0.05
"""A comparison is decided if its p-value is below this."""
PERMUTATIONS = 10_000
MAX_PARTS = 2_000
"""Finest grid of probabilities on which the permutation test is exact; beyond it, draws decide."""


class Interval(NamedTuple):
    """A confidence interval; both ends are NaN where it cannot be estimated."""

    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan)


# ---------------------------------------------------------------------- estimates
#
# The first four take seeds on the last axis, so that one call handles all resamples.


def mean(strata: Strata) -> np.ndarray:
    """Mean over environments of the mean over seeds."""
    return np.mean([stratum.mean(axis=-1) for stratum in strata], axis=0)


def iqm(strata: Strata) -> np.ndarray:
    """Interquartile mean: the mean of all runs without the lowest and highest quarters."""
    ordered = np.sort(np.concatenate(strata, axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def optimality_gap(strata: Strata, target: float = 1.0) -> np.ndarray:
    """Mean shortfall of runs relative to a target; runs above the target count as 0."""
    return mean([np.maximum(0.0, 1.0 - stratum / target) for stratum in strata])


def probability_of_improvement(ours: Strata, theirs: Strata) -> np.ndarray:
    """P(a run of ours beats a run of theirs), ties counted as half, averaged over environments."""
    chances = []
    for mine, other in zip(ours, theirs, strict=True):
        difference = mine[..., :, None] - other[..., None, :]
        chances.append((0.5 + 0.5 * np.sign(difference)).mean(axis=(-2, -1)))
    return np.mean(chances, axis=0)


def leave_one_out(statistic: Callable[..., np.ndarray], *samples: Strata) -> Interval:
    """Lowest and highest estimate when any one environment is left out; unknown if there is one."""
    count = len(samples[0])
    if count < 2:
        return UNKNOWN
    found = [
        float(statistic(*([*own[:env], *own[env + 1 :]] for own in samples)))
        for env in range(count)
    ]
    return Interval(min(found), max(found))


class LowerTail(NamedTuple):
    """How bad a method's unlucky seeds are."""

    quantile: float
    """The 10 % quantile of all its runs."""
    share: float
    """The share of its runs that fail: see `lower_tail`."""


def lower_tail(strata: Strata, medians: Sequence[float]) -> LowerTail:
    """The 10 % quantile of a method's runs, and the share of runs below half of a median.

    `strata` are its normalized returns; `medians` are those of all methods' runs together, one per
    environment, so that all methods meet the same bar. An environment whose median is not above 0
    has no such bar: its runs do not count in the share.
    """
    quantile = float(np.quantile(np.concatenate(strata), 0.1))
    failed = [own < median / 2 for own, median in zip(strata, medians, strict=True) if median > 0]
    return LowerTail(quantile, float(np.concatenate(failed).mean()) if failed else np.nan)


def standard_deviation(values: np.ndarray) -> float:
    """Standard deviation over seeds (n - 1); NaN for one seed."""
    return float(values.std(ddof=1)) if values.size > 1 else np.nan


def expected_maximum(values: np.ndarray, count: int) -> float:
    """Mean maximum over all subsets of `count` values; NaN if there are fewer values."""
    if values.size < count:
        return np.nan
    ordered = np.sort(values)
    weights = [math.comb(index, count - 1) for index in range(values.size)]
    return float(np.dot(ordered, weights) / math.comb(values.size, count))


def area_under_curve(steps: np.ndarray, values: np.ndarray) -> float:
    """Mean height of a learning curve between its first and last step (trapezoidal rule)."""
    if len(steps) < 2:
        return float(values[-1])
    return float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))


def steps_to_threshold(steps: np.ndarray, values: np.ndarray, threshold: float) -> float:
    """Step of the first evaluation at or above the threshold; infinity if none reaches it."""
    reached = np.flatnonzero(values >= threshold)
    return float(steps[reached[0]]) if reached.size else np.inf


def performance_profile(strata: Strata, thresholds: np.ndarray) -> np.ndarray:
    """The fraction of runs above each threshold, averaged over environments."""
    fractions = [(stratum[:, None] > thresholds[None, :]).mean(axis=0) for stratum in strata]
    return np.mean(fractions, axis=0)


# ---------------------------------------------------------------------- intervals


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t with `freedom` degrees of freedom."""
    from scipy.special import stdtrit  # imported here to keep every command's startup short

    return float(stdtrit(freedom, probability))


def too_few(strata: Strata, envs: int | None = None) -> bool:
    """Whether these seeds carry no interval: fewer than four in one environment, or one in any."""
    envs = len(strata) if envs is None else envs
    return min(len(stratum) for stratum in strata) < (MIN_SEEDS if envs == 1 else 2)


def _weights(seeds: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The share of each seed in each resample: (resamples, seeds)."""
    return rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples) / seeds


def mean_interval(
    strata: Strata, rng: np.random.Generator, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Confidence interval of the mean over environments of the mean over seeds."""
    columns = [np.asarray(stratum, float)[:, None] for stratum in strata]
    low, high = mean_intervals(columns, rng, level, resamples)
    return Interval(float(low[0]), float(high[0]))


def mean_intervals(
    strata: Strata, rng: np.random.Generator, level: float = LEVEL, resamples: int = RESAMPLES
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of many means at once, from strata (seeds, points): low and high, (points,)."""
    points = strata[0].shape[1]
    if too_few(strata):
        return np.full(points, np.nan), np.full(points, np.nan)
    estimate = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    squared = sum(stratum.var(axis=0, ddof=1) / len(stratum) for stratum in strata)
    error = np.sqrt(squared) / len(strata)
    tails = ((1 - level) / 2, (1 + level) / 2)
    freedom = sum(len(stratum) - 1 for stratum in strata)
    if freedom < MIN_BOOTSTRAP_FREEDOM:
        half_width = student_quantile(tails[1], freedom) * error
        return estimate - half_width, estimate + half_width
    drawn, drawn_squared = np.zeros((resamples, points)), np.zeros((resamples, points))
    for stratum in strata:
        centered = stratum - stratum.mean(axis=0)
        weights = _weights(len(stratum), resamples, rng)
        means = weights @ centered
        drawn += means
        drawn_squared += np.maximum(weights @ centered**2 - means**2, 0.0) / (len(stratum) - 1)
    drawn_error = np.sqrt(drawn_squared) / len(strata)
    floor = np.where(error > 0, ERROR_FLOOR * error, 1.0)
    studentized = drawn / len(strata) / np.maximum(drawn_error, floor)
    lower, upper = np.quantile(studentized, tails, axis=0)
    return estimate - upper * error, estimate - lower * error


def widened_tail(strata: Strata, level: float = LEVEL) -> float:
    """Tail probability of a percentile interval, widened as Hesterberg 2015 does for few seeds.

    Its normal quantile is Student's t times sqrt(n / (n - 1)), which undoes the bootstrap's bias.
    """
    freedom = sum(len(stratum) - 1 for stratum in strata)
    seeds = np.mean([len(stratum) for stratum in strata])
    quantile = student_quantile((1 + level) / 2, freedom) * math.sqrt(seeds / (seeds - 1))
    return 0.5 * math.erfc(quantile / math.sqrt(2))


def percentile_interval(
    statistic: Callable[[list[np.ndarray]], np.ndarray],
    strata: Strata,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile interval of any statistic that works on the last axis."""
    if too_few(strata):
        return UNKNOWN
    drawn = [
        stratum[rng.integers(0, len(stratum), (resamples, len(stratum)))] for stratum in strata
    ]
    values = statistic(drawn)
    tail = widened_tail(strata, level)
    low, high = np.quantile(values, (tail, 1 - tail))
    return Interval(float(low), float(high))


def improvement_interval(
    ours: Strata, theirs: Strata, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Interval of the probability of improvement, from resamples of both methods' seeds."""
    count = len(ours)
    if too_few([*ours, *theirs], count):
        return UNKNOWN
    return percentile_interval(
        lambda drawn: probability_of_improvement(drawn[:count], drawn[count:]),
        [*ours, *theirs],
        rng,
        resamples=resamples,
    )


# ---------------------------------------------------------------------- tests


def permutation_p(ours: Strata, theirs: Strata, rng: np.random.Generator) -> float:
    """Two-sided p-value of the probability of improvement if methods did not matter.

    Labels of methods are permuted within environments. The distribution is exact; only where the
    numbers of seeds differ so much that there is no common grid, it is drawn. In one environment
    this is the exact Mann-Whitney test, ties included.
    """
    nulls = [_null_wins(mine, other) for mine, other in zip(ours, theirs, strict=True)]
    far = abs(float(probability_of_improvement(ours, theirs)) - 0.5) - 1e-9
    parts = math.lcm(*(len(null) - 1 for null in nulls))
    if parts > MAX_PARTS:
        drawn = np.mean(
            [rng.choice(len(null), PERMUTATIONS, p=null) / (len(null) - 1) for null in nulls],
            axis=0,
        )
        return float((np.sum(np.abs(drawn - 0.5) >= far) + 1) / (PERMUTATIONS + 1))
    total = np.ones(1)
    for null in nulls:
        spread = np.zeros(parts + 1)
        spread[:: parts // (len(null) - 1)] = null
        total = np.convolve(total, spread)
    chances = np.arange(len(total)) / (len(total) - 1)
    return min(1.0, float(total[np.abs(chances - 0.5) >= far].sum()))


def _null_wins(mine: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The probability of 0, ½, 1, … wins over all pairs of runs, if labels are permuted.

    Counts the choices of runs by their sum of ranks, run by run; ranks are doubled, so that the
    middle ranks of ties are whole.
    """
    pooled, chosen = np.concatenate([mine, other]), len(mine)
    ranks = 1 + np.sign(pooled[:, None] - pooled[None, :]).sum(axis=1) + len(pooled)
    ranks = ranks.round().astype(int)
    counts = np.zeros((chosen + 1, int(np.sort(ranks)[-chosen:].sum()) + 1))
    counts[0, 0] = 1.0
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank].copy()
    least = chosen * (chosen + 1)
    wins = np.zeros(2 * chosen * len(other) + 1)
    wins[: counts.shape[1] - least] = counts[chosen, least:]
    return wins / wins.sum()


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979): at most 5 % of families err at 0.05."""
    corrected, floor = [1.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values)):
        floor = max(floor, (len(p_values) - place) * p_values[index])
        corrected[index] = min(1.0, floor)
    return corrected


def verdict(chance: float, p_value: float) -> str:
    """What a comparison says: `above`, `below`, or `undecided`."""
    if not p_value < DECIDED:
        return "undecided"
    return "above" if chance > 0.5 else "below"
