"""The clock of a scheme, on the host: who acts at a step, and what is due after it.

EveryStep       all copies step together; updates follow every step, or every few steps where there
                are less than one per step; a review every M own steps
WholeEpisodes   rounds: every copy plays its episodes and waits for the others; then a review, and
                updates for the steps that the round took, before the next round begins
FullRollout     one copy steps; an update follows when its rollout is full
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any, NamedTuple, Protocol

import numpy as np

from p3s.algorithms.on_policy import OnPolicy

SMALLEST_SHARE = 1_000_000
"""Own steps that one update may be spread over."""


class Due(NamedTuple):
    """What follows a step, in this order; the backlog is run before the next step."""

    updates: int = 0
    review: bool = False
    backlog: int = 0


class Rhythm(Protocol):
    """What the training loop asks at every step."""

    def active(self, steps_left: int) -> np.ndarray:
        """The environment copies that step now; steps_left: until the end of the run."""
        ...

    def updates_after(self, time_step: int) -> int:
        """The updates due after this step, if that is known before it; otherwise 0."""
        ...

    def after(self, time_step: int, stepped: np.ndarray, ended: list[int]) -> Due:
        """What is due after these copies stepped and those of them ended an episode."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        ...

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        ...


class EveryStep:
    """All copies step together, and learning follows every step.

    updates: per step. 0.25 means one after steps 4, 8, 12, ... from T_initial on.
    """

    def __init__(
        self, num_envs: int, initial_steps: int, updates: int | float, review_period: int
    ) -> None:
        self._all = np.arange(num_envs)
        self._initial_steps = initial_steps
        # Exact, so that 0.1 is one update in ten steps however many steps there are.
        self.updates = Fraction(updates).limit_denominator(SMALLEST_SHARE)
        self._review_period = review_period

    def active(self, steps_left: int) -> np.ndarray:
        return self._all

    def updates_after(self, time_step: int) -> int:
        if time_step < self._initial_steps:
            return 0
        return floor(time_step * self.updates) - floor((time_step - 1) * self.updates)

    def updates_until(self, time_step: int) -> int:
        """The updates due after all steps up to this one."""
        if time_step < self._initial_steps:
            return 0
        before = max(0, self._initial_steps - 1)
        return floor(time_step * self.updates) - floor(before * self.updates)

    def after(self, time_step: int, stepped: np.ndarray, ended: list[int]) -> Due:
        review = time_step >= self._initial_steps and time_step % self._review_period == 0
        return Due(self.updates_after(time_step), review)

    def snapshot(self) -> dict[str, Any]:
        return {}

    def resume(self, values: dict[str, Any]) -> None:
        pass


class WholeEpisodes:
    """Every copy plays its episodes of a round and waits; then the chief reviews, and all learn."""

    def __init__(
        self, episodes: np.ndarray, initial_total_steps: int, updates_per_step: int
    ) -> None:
        self._episodes = episodes
        self._initial_total_steps, self._updates_per_step = initial_total_steps, updates_per_step
        self.episodes_left = episodes.copy()
        self.round_steps = 0
        self.total_steps = 0

    def active(self, steps_left: int) -> np.ndarray:
        return np.flatnonzero(self.episodes_left)[:steps_left]

    def updates_after(self, time_step: int) -> int:
        return 0

    def after(self, time_step: int, stepped: np.ndarray, ended: list[int]) -> Due:
        self.round_steps += len(stepped)
        self.total_steps += len(stepped)
        self.episodes_left[ended] -= 1
        if self.episodes_left.any():
            return Due()
        trains = self.total_steps > self._initial_total_steps
        backlog = self.round_steps * self._updates_per_step if trains else 0
        self.episodes_left[:] = self._episodes
        self.round_steps = 0
        return Due(review=True, backlog=backlog)

    def snapshot(self) -> dict[str, Any]:
        counts = np.array([self.round_steps, self.total_steps])
        return {"episodes_left": self.episodes_left, "counts": counts}

    def resume(self, values: dict[str, Any]) -> None:
        self.episodes_left = values["episodes_left"].copy()
        self.round_steps, self.total_steps = (int(count) for count in values["counts"])


class FullRollout:
    """One copy steps; one update follows when the algorithm says that the rollout is full."""

    def __init__(self, algorithm: OnPolicy) -> None:
        self._algorithm = algorithm
        self.num_rows = 0

    def active(self, steps_left: int) -> np.ndarray:
        return np.zeros(1, np.int64)

    def updates_after(self, time_step: int) -> int:
        return 0

    def after(self, time_step: int, stepped: np.ndarray, ended: list[int]) -> Due:
        self.num_rows += 1
        if not self._algorithm.rollout_full(self.num_rows, bool(ended)):
            return Due()
        self.num_rows = 0
        return Due(updates=1)

    def snapshot(self) -> dict[str, Any]:
        return {"num_rows": np.array(self.num_rows)}

    def resume(self, values: dict[str, Any]) -> None:
        self.num_rows = int(values["num_rows"])
