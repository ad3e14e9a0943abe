"""The chief: choose the best learner and adapt the pull towards it (Section 3, eq. 6).

    at the end of a period
        b      <- the learner with the highest mean of its last E_r returns
        D_spread, D_change <- means over the learners that are not excluded
        beta   <- 2 beta  if D_spread > 1.5 max(rho D_change, d_min)
                  beta/2  if D_spread < max(rho D_change, d_min) / 1.5

Plain functions on host numbers: the chief speaks once a period, so nothing here is compiled,
and everything that has a chief (schemes, theory) uses these same rules.
"""

from __future__ import annotations

import numpy as np

BAND = 1.5
"""How far D_spread may be from the search radius, as a factor, before beta moves (eq. 6)."""


def mean_returns(recent_returns: np.ndarray) -> np.ndarray:
    """Mean recent return of each learner, (learners, E_r) -> (learners,); NaN is "none yet"."""
    known = ~np.isnan(recent_returns)
    count = known.sum(axis=1)
    total = np.where(known, recent_returns, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def best_learner(recent_returns: np.ndarray) -> int | None:
    """Index of the highest mean recent return; the lowest index wins a tie.

    A learner that has finished no episode cannot be best; None if none has.
    """
    means = mean_returns(recent_returns)
    if np.isnan(means).all():
        return None
    return int(np.nanargmax(means))


def mean_over_others(per_learner: np.ndarray, excluded: int | None) -> float | None:
    """Mean over all learners but one (eq. 6's I^{-b}); None if nobody is left."""
    others = np.delete(per_learner, [] if excluded is None else [excluded])
    return float(others.mean()) if others.size else None


def search_radius(change: float, rho: float, d_min: float) -> float:
    """d_search = max(rho * D_change, d_min): how far from the best the population should be."""
    return max(rho * change, d_min)


def adapt_beta(
    beta: float, spread: float, change: float, rho: float, d_min: float, limit: float = np.inf
) -> float:
    """Eq. 6: pull harder when the population is spread too far, softer when it is too close.

    With a finite `limit` beta doubles only while below it and halves only while above 1/limit.
    """
    radius = search_radius(change, rho, d_min)
    if spread > radius * BAND and beta < limit:
        return beta * 2.0
    if spread < radius / BAND and beta > 1.0 / limit:
        return beta / 2.0
    return beta
