"""How fast each shard is, and how long it waits for the others."""

from __future__ import annotations

import time

import numpy as np


class Pace:
    """The time that shards work, and the time until all of them are done."""

    def __init__(self, parts: list[range]) -> None:
        self._sizes = np.array([len(part) for part in parts])
        self.begin_at(0)

    def begin_at(self, time_step: int) -> None:
        """Begin anew, at this own step of the learners."""
        self._from_step, self._elapsed = time_step, 0.0
        self._worked = np.zeros(len(self._sizes))
        self._before: np.ndarray | None = None

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._elapsed += time.perf_counter() - self._started

    def worked(self, seconds: list[float]) -> None:
        """Note the time that each shard has worked, so far."""
        now = np.array(seconds)
        self._worked += now if self._before is None else now - self._before
        self._before = now

    def rows(self, time_step: int) -> list[dict[str, float]]:
        """For each shard its steps/s and the share of the time that it waited, since the last."""
        steps = (time_step - self._from_step) * self._sizes
        rates = steps / np.maximum(self._worked, 1e-9)
        waiting = 1 - self._worked / max(self._elapsed, 1e-9)
        before = self._before
        self.begin_at(time_step)
        self._before = before
        return [
            {"steps_per_second": round(float(rate), 1), "waiting": round(max(float(share), 0), 3)}
            for rate, share in zip(rates, waiting, strict=True)
        ]
