"""The training returns that the chief looks at: the last few of each learner, or a fading mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.types import Episode

if TYPE_CHECKING:
    from p3s.schemes import Scheme

NONE = float(np.finfo(np.float32).min)
"""Stands for "no return" in notes, which are finite as all of a scheme's state is."""


def noted(recent_returns: np.ndarray) -> np.ndarray:
    """Recent returns as a scheme keeps them, float32."""
    return np.where(np.isnan(recent_returns), NONE, recent_returns).astype(np.float32)


def new_returns(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """The recent returns that came after `before` was noted, NaN elsewhere; both (learners, E_r).

    A row has moved on by the fewest places that explain it.
    """
    length = now.shape[1]
    found = np.full(now.shape, np.nan)
    for row, (old, latest) in enumerate(zip(before, noted(now), strict=True)):
        count = next(
            count
            for count in range(length + 1)
            if np.array_equal(old[count:], latest[: length - count])
        )
        found[row, length - count :] = now[row, length - count :]
    return found


class RecentReturns:
    """The last E_r returns per learner, oldest first; NaN where there are fewer."""

    def __init__(self, num_learners: int, num_recent: int, envs_per_learner: int = 1) -> None:
        self.values = np.full((num_learners, num_recent), np.nan)
        self._each = envs_per_learner

    def add(self, episode: Episode) -> None:
        """Count a finished episode."""
        own = self.values[episode.copy // self._each]
        own[:-1] = own[1:]
        own[-1] = episode.total

    def forget(self, learners: list[int]) -> None:
        """Drop the returns of these learners."""
        self.values[learners] = np.nan

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        return {"values": self.values}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.values = values["values"].copy()


class FadingReturns(RecentReturns):
    """One mean per learner in which a return fades with its age in own steps.

    A return weighs exp(-age / memory). The age of the latest is common to all of a learner's
    returns and cancels, so the mean changes only when an episode ends. Of K copies that play at
    the same time, an episode counts as a K-th of its steps.
    """

    def __init__(self, num_learners: int, memory: int, envs_per_learner: int = 1) -> None:
        super().__init__(num_learners, 1, envs_per_learner)
        self._memory = memory
        self._weights = np.zeros(num_learners)

    def add(self, episode: Episode) -> None:
        learner, age = episode.copy // self._each, episode.length / self._each
        kept = self._weights[learner] * np.exp(-age / self._memory)
        before = self.values[learner, 0] if kept > 0 else 0.0
        self._weights[learner] = kept + 1.0
        self.values[learner, 0] = (kept * before + episode.total) / (kept + 1.0)

    def forget(self, learners: list[int]) -> None:
        super().forget(learners)
        self._weights[learners] = 0.0

    def snapshot(self) -> dict[str, Any]:
        return {"values": self.values, "weights": self._weights}

    def resume(self, values: dict[str, Any]) -> None:
        super().resume(values)
        self._weights = values["weights"].copy()


def make_returns(scheme: Scheme) -> RecentReturns:
    """What a scheme's chief looks at."""
    each = scheme.envs_per_learner
    num_acting = scheme.num_envs // each
    if scheme.fading_returns is not None:
        return FadingReturns(num_acting, scheme.fading_returns, each)
    return RecentReturns(num_acting, scheme.num_recent, each)
