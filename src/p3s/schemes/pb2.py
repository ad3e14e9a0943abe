"""Population-based bandits, PB2 (Parker-Holder et al. 2020): PBT that models what pays.

    every step:   as in PBT
    every M own steps, the chief
        notes for each learner (review t, mean return before, own values x, gain in mean return),
            by means over the episodes finished since the review before
        ranks the learners, and lets the worst copy the best, as in PBT; a copy's next gain counts
            from the mean of the learner that it copied, by the same episodes
        fits a Gaussian process to the gains, whose kernel fades with time:
            k = exp(-‖z - z'‖² / 2 l²) (1 - eps)^(|t - t'| / 2),   z = (x, mean return before)
        gives each copy, one after the other, the values within the bounds that maximize
            mean(x) + kappa sd(x),   kappa² = optimism log(0.4 n)
        where sd also counts what the others are about to try

Values are placed in [0, 1] by their logarithm between the bounds, horizons likewise. l, eps and the
noise are those of a grid with the highest marginal likelihood.

Differs from the authors' code in: the logarithms; sd in place of the variance; a grid in place of
gradient steps on the likelihood; random candidates in place of L-BFGS. Learners share one replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from p3s import chief
from p3s.errors import UserError
from p3s.experience.returns import NONE, new_returns, noted
from p3s.fields.types import Count, NonNegative, check_fields
from p3s.schemes.base import Decision
from p3s.schemes.pbt import WITH_HORIZON, WorstFollowBest, perturb
from p3s.types import EnvSpec, Learner

BOUND_FACTOR = 10.0
"""How far bounds are from the given value where none are given."""
NUM_CANDIDATES = 1000
MOST_POINTS = 200
"""Latest points that the process is fitted to."""
LARGEST_GAIN = 2.0
"""Standardized gains are clipped to this."""


class Smoothness(NamedTuple):
    """What shapes the process."""

    length: float
    """Distance over which gains are alike (l)."""
    forgetting: float
    """How much of their likeness is lost from a review to the next (ε)."""
    noise: float
    """Variance of a gain about its mean."""


GRID = tuple(
    Smoothness(*values)
    for values in product((0.1, 0.3, 1.0, 3.0), (0.0, 0.02, 0.1, 0.5), (0.03, 0.2, 1.0))
)


class Points(NamedTuple):
    """Reviews, (points,), and what was in force: own values and return before, (points, z)."""

    times: np.ndarray
    places: np.ndarray


class History(NamedTuple):
    """What each learner's own values have brought, latest last; stacked over the learners."""

    times: Any
    """Review at which a gain was noted, (learners, memory); 0: none."""
    positions: Any
    """Own values, each in [0, 1] between its bounds, (learners, memory, fields)."""
    before: Any
    """Mean return before, (learners, memory)."""
    gains: Any
    """Gain of the mean return per review, (learners, memory)."""
    start: Any
    """Mean return that the next gain counts from, (learners,)."""
    since: Any
    """Review at which that was measured, (learners,); 0: never."""
    returns: Any
    """Recent returns at the latest review, (learners, E_r); `noted`."""


class PB2State(NamedTuple):
    """The learners, their own hyper-parameters, and what the chief has noted of them."""

    learners: Learner
    indices: jax.Array
    own_fields: dict[str, jax.Array]
    history: History
    num_reviews: jax.Array


def ratio(name: str, base: float, value: Any) -> Any:
    """The factor that `perturb` takes from one value to the other."""
    return (1 - base) / (1 - value) if name in WITH_HORIZON else value / base


def kernel(ours: Points, theirs: Points, smoothness: Smoothness) -> np.ndarray:
    """How alike gains are at two sets of points, (ours, theirs)."""
    squares = ((ours.places[:, None] - theirs.places[None]) ** 2).sum(axis=-1)
    apart = np.abs(ours.times[:, None] - theirs.times[None])
    near = np.exp(-squares / (2 * smoothness.length**2))
    return near * (1 - smoothness.forgetting) ** (apart / 2)


def _factor(points: Points, smoothness: Smoothness) -> np.ndarray:
    noisy = kernel(points, points, smoothness) + smoothness.noise * np.eye(len(points.times))
    return cho_factor(noisy, lower=True)[0]


def log_likelihood(points: Points, gains: np.ndarray, smoothness: Smoothness) -> float:
    """Log of the marginal likelihood of the gains."""
    factor = _factor(points, smoothness)
    fit = gains @ cho_solve((factor, True), gains)
    return float(-0.5 * (fit + len(gains) * np.log(2 * np.pi)) - np.log(np.diag(factor)).sum())


def posterior(
    points: Points, gains: np.ndarray, queries: Points, smoothness: Smoothness
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the noiseless gain at each query."""
    if not len(gains):
        return np.zeros(len(queries.times)), np.ones(len(queries.times))
    factor, across = _factor(points, smoothness), kernel(points, queries, smoothness)
    mean = across.T @ cho_solve((factor, True), gains)
    explained = solve_triangular(factor, across, lower=True)
    return mean, np.maximum(1 - (explained**2).sum(axis=0), 0)


def upper_bounds(
    points: Points,
    gains: np.ndarray,
    tried: Points,
    queries: Points,
    smoothness: Smoothness,
    optimism: float,
) -> np.ndarray:
    """mean + kappa sd at each query; `tried` is about to be tried, its gains are unknown."""
    mean, _ = posterior(points, gains, queries, smoothness)
    both = Points(*map(np.concatenate, zip(points, tried, strict=True)))
    _, variance = posterior(both, np.zeros(len(both.times)), queries, smoothness)
    width = np.sqrt(optimism * np.log(max(1.0, 0.4 * len(gains))))
    return mean + width * np.sqrt(variance)


def standardize(gains: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1, clipped."""
    centered = gains - gains.mean() if len(gains) else gains
    deviation = centered.std() if len(gains) else 0.0
    return np.clip(centered / (deviation or 1.0), -LARGEST_GAIN, LARGEST_GAIN)


def note_gains(history: History, positions: np.ndarray, means: np.ndarray, review: int) -> History:
    """The history with the gain of every learner that finished an episode since it was measured."""
    due = ~np.isnan(means) & (history.since > 0)
    gains = (means - history.start) / np.maximum(review - history.since, 1)

    def noted(past: np.ndarray, latest: np.ndarray) -> np.ndarray:
        later = np.concatenate([past[:, 1:], np.asarray(latest, past.dtype)[:, None]], axis=1)
        return np.where(due.reshape(-1, *[1] * (past.ndim - 1)), later, past)

    return history._replace(
        times=noted(history.times, np.full(len(means), review)),
        positions=noted(history.positions, positions),
        before=noted(history.before, history.start),
        gains=noted(history.gains, np.where(due, gains, 0.0)),
    )


def start_over(history: History, means: np.ndarray, sources: np.ndarray, review: int) -> History:
    """The history whose next gains count from these means, where they are known.

    sources: whom each learner continues from; a copy's gain counts from its source's mean.
    """
    known = ~np.isnan(means)
    return history._replace(
        start=np.where(known, means, history.start).astype(np.float32)[sources],
        since=np.where(known, review, history.since).astype(np.int32)[sources],
    )


def note_returns(history: History, recent_returns: np.ndarray, sources: np.ndarray) -> History:
    """The history with the returns so far; those of copies are forgotten."""
    moved = sources != np.arange(len(sources))
    return history._replace(returns=noted(np.where(moved[:, None], np.nan, recent_returns)))


@dataclass(frozen=True, kw_only=True)
class PB2(WorstFollowBest):
    """PBT in which a Gaussian process chooses the hyper-parameters, within bounds."""

    name: ClassVar[str] = "pb2"
    stacked: ClassVar[tuple[str, ...]] = (*WorstFollowBest.stacked, "history")

    lower_bounds: tuple[float, ...] = ()
    """Smallest value of each perturbed field, in their order; by default a tenth of the given."""
    upper_bounds: tuple[float, ...] = ()
    """Largest value of each perturbed field, in their order; by default ten times the given."""
    optimism: NonNegative = 0.2
    """How much uncertain values are preferred."""
    memory: Count = 50
    """Reviews of each learner that are remembered."""

    def problem(self) -> UserError | None:
        found = super().problem()
        if found is not None:
            return found
        for field in ("lower_bounds", "upper_bounds"):
            given = getattr(self, field)
            if given and len(given) != len(self.perturbed):
                names = ", ".join(self.perturbed)
                return UserError(f"{field} needs a number for each of {names}", field)
        for name in self.perturbed:
            low, high = self.bounds_of(name)
            bounded = f"{name} between {low:g} and {high:g}"
            same_sign = name in WITH_HORIZON or low * high > 0
            if not (low < high and same_sign) or (name in WITH_HORIZON and high >= 1):
                message = f"cannot search {bounded}: give lower_bounds and upper_bounds"
                return UserError(f"scheme pb2 {message}", "lower_bounds")
            try:
                for value in (low, high):
                    check_fields(replace(self.algorithm, **{name: value}))
            except UserError as error:
                return UserError(f"scheme pb2 would search {bounded}: {error}", "perturbed")
        return None

    def bounds_of(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value of a perturbed field."""
        place, value = self.perturbed.index(name), getattr(self.algorithm, name)
        low, high = sorted(perturb(name, value, by) for by in (1 / BOUND_FACTOR, BOUND_FACTOR))
        if name in WITH_HORIZON:
            low = max(low, 0.0)
        return (
            self.lower_bounds[place] if self.lower_bounds else low,
            self.upper_bounds[place] if self.upper_bounds else high,
        )

    def position_of(self, name: str, value: Any) -> Any:
        """Where a value is between its bounds, in [0, 1] by its logarithm."""
        low, high = self.bounds_of(name)
        return np.log(ratio(name, low, np.asarray(value, float))) / np.log(ratio(name, low, high))

    def value_at(self, name: str, position: Any) -> Any:
        """The inverse."""
        low, high = self.bounds_of(name)
        return perturb(name, low, ratio(name, low, high) ** position)

    def start_value(self, name: str, draw: jax.Array) -> jax.Array:
        """Anywhere within the bounds."""
        return jnp.clip(self.value_at(name, (1 + draw) / 2), *self.bounds_of(name))

    def init(self, key: jax.Array, spec: EnvSpec) -> PB2State:
        shape = (self.num_learners, self.memory)
        history = History(
            times=jnp.zeros(shape, jnp.int32),
            positions=jnp.zeros((*shape, len(self.perturbed)), jnp.float32),
            before=jnp.zeros(shape, jnp.float32),
            gains=jnp.zeros(shape, jnp.float32),
            start=jnp.zeros(self.num_learners, jnp.float32),
            since=jnp.zeros(self.num_learners, jnp.int32),
            returns=jnp.full((self.num_learners, self.num_recent), NONE, jnp.float32),
        )
        plain = super().init(key, spec)._asdict()
        return PB2State(**plain, history=history, num_reviews=jnp.int32(0))

    def report(self, state: PB2State, observations: np.ndarray) -> dict[str, Any]:
        more = {"history": state.history, "num_reviews": state.num_reviews}
        return {**super().report(state, observations), **more}

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        if self.best(recent_returns) is not None:
            report = {**report, "recent_returns": recent_returns}
        return super().decide(report, recent_returns, rng)

    def explore(
        self,
        report: dict[str, Any],
        sources: np.ndarray,
        means: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        own_fields, review = dict(report["own_fields"]), int(report["num_reviews"]) + 1
        positions = np.stack(
            [self.position_of(name, own_fields[name]) for name in self.perturbed], axis=-1
        )
        history, recent_returns = report["history"], report["recent_returns"]
        latest = chief.mean_returns(new_returns(history.returns, recent_returns))
        history = note_gains(history, positions, latest, review)
        history = start_over(history, latest, sources, review)
        moved = np.flatnonzero(sources != np.arange(len(sources)))
        before = np.where(history.since > 0, history.start, np.nan)
        chosen, about = self._choose(history, positions[sources], before, moved, review, rng)
        for index, name in enumerate(self.perturbed):
            low, high = self.bounds_of(name)
            values = np.array(own_fields[name])
            explored = self.value_at(name, chosen[moved, index])
            values[moved] = np.clip(explored, low, high)
            own_fields[name] = values
        after = {
            "own_fields": own_fields,
            "history": note_returns(history, recent_returns, sources),
            "num_reviews": np.int32(review),
        }
        return after, about

    def _choose(
        self,
        history: History,
        positions: np.ndarray,
        means: np.ndarray,
        moved: np.ndarray,
        review: int,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Everybody's positions, new ones for those who moved, and the process behind them."""
        order = np.argsort(history.times, axis=None, kind="stable")[-MOST_POINTS:]
        order = order[history.times.ravel()[order] > 0]
        before = history.before.ravel()[order].astype(float)
        least, span = (before.min(), np.ptp(before) or 1.0) if len(order) else (0.0, 1.0)

        def points(times: np.ndarray, own: np.ndarray, returns: np.ndarray) -> Points:
            return Points(times, np.column_stack([own, (returns - least) / span]))

        past = history.positions.reshape(-1, positions.shape[1])[order].astype(float)
        seen = points(history.times.ravel()[order], past, before)
        gains = standardize(history.gains.ravel()[order].astype(float))
        smoothness = max(GRID, key=lambda each: log_likelihood(seen, gains, each))
        chosen, now = positions.copy(), np.full(NUM_CANDIDATES, review)
        tried = ~np.isnan(means)
        tried[moved] = False
        for learner in moved:
            candidates = rng.random((NUM_CANDIDATES, positions.shape[1]))
            others = points(now[: tried.sum()], chosen[tried], means[tried])
            queries = points(now, candidates, np.full(NUM_CANDIDATES, means[learner]))
            bounds = upper_bounds(seen, gains, others, queries, smoothness, self.optimism)
            chosen[learner] = candidates[np.argmax(bounds)]
            tried[learner] = True
        return chosen, {"process": smoothness._asdict(), "num_points": len(order)}
