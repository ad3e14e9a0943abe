"""Rewards over the standard deviation of the discounted return, by running statistics.

    after every step   R <- gamma R + r for each environment copy, 0 where an episode ends
                       count R in one mean and one variance for all copies
    in learning        rewards of minibatches are divided by std(R) + 1e-8, or, with a limit, by
                       the larger of that and the largest |R| so far over the limit

The replay holds rewards as they came. An update uses the statistics before the latest step, which
are known before that step is over, so that updates can run ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

EPSILON = 1e-8


class RewardScale:
    """The standard deviation of all discounted returns so far, in double precision.

    limit: no scaled return so far is larger; None: none is needed.
    """

    def __init__(self, discount_factor: float, limit: float | None = None) -> None:
        self._discount_factor, self._limit = discount_factor, limit
        self._largest = 0.0
        self._returns: dict[int, float] = {}
        """For each copy within an episode, its discounted return so far."""
        self._count, self._mean = 0, 0.0
        self._squares = 0.0
        """Sum of squared differences from the mean."""
        self._before = 1.0

    def see(self, rewards: np.ndarray, copies: Sequence[int], ended: Sequence[int]) -> None:
        """Count one step of these copies; ended: whose episode ended with it."""
        self._before = self._now
        for copy, reward in zip(copies, rewards.tolist(), strict=True):
            value = self._discount_factor * self._returns.pop(copy, 0.0) + reward
            self._count += 1
            self._largest = max(self._largest, abs(value))
            ahead = value - self._mean
            self._mean += ahead / self._count
            self._squares += ahead * (value - self._mean)
            if copy not in ended:
                self._returns[copy] = value

    @property
    def _now(self) -> float:
        """What rewards are divided by, all steps counted; 1 while all returns are alike."""
        deviation = float(np.sqrt(self._squares / max(self._count, 1)))
        if deviation <= EPSILON:
            return 1.0
        return max(deviation + EPSILON, self._largest / (self._limit or np.inf))

    def divisor(self, pending: bool) -> np.float32:
        """What an update divides rewards by; pending: the latest step is still to be counted."""
        return np.float32(self._now if pending else self._before)

    def cut(self) -> None:
        """The episodes in progress will not continue."""
        self._returns.clear()

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        moments = [float(self._count), self._mean, self._squares, self._before, self._largest]
        return {
            "return_moments": np.array(moments),
            "return_copies": np.array(list(self._returns), np.int64),
            "returns": np.array(list(self._returns.values()), np.float64),
        }

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        moments = values["return_moments"].tolist()
        count, self._mean, self._squares, self._before, self._largest = moments
        self._count = int(count)
        copies, returns = (values[name].tolist() for name in ("return_copies", "returns"))
        self._returns = dict(zip(copies, returns, strict=True))
