"""Credit for delayed rewards: what learners are paid for a step, by what its whole bag was paid.

    its credit    R/T: the rewards of a bag (bags.py) over its steps
    minibatches   steps of complete bags; their rewards are the rule's

The rule here is IRCR (Gangwani et al. 2020), which has no network of its own:

    r = (credit - smallest) / (largest - smallest)     over all complete bags; 0 if they are equal

Differs from the authors' code in: one replay, and no heap of the best episodes beside it; steps are
drawn with replacement; bags, where they reward whole episodes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from p3s.envs.delay import Delay
from p3s.experience.bags import Bags
from p3s.experience.episode_links import NONE
from p3s.experience.normalization import Scaling


class Credit(Bags):
    """IRCR's rewards."""

    name = "ircr"
    needed_by: ClassVar[str] = "credit ircr"

    def __init__(self, capacity: int, delay: Delay | None, lag: int) -> None:
        super().__init__(capacity, delay, lag)
        self.credits = np.full(capacity, np.nan, np.float32)
        """For each place of the replay's ring the credit of its step; NaN: it has none."""
        self._range: tuple[float, float] | None = None

    def _entered(self, places: np.ndarray, total: float) -> None:
        self.credits[places] = total / len(places)
        if self._range is not None:
            credit, (smallest, largest) = float(self.credits[places[0]]), self._range
            self._range = min(smallest, credit), max(largest, credit)

    def _dropped(self, places: np.ndarray) -> None:
        if self._range is not None and self.credits[places[0]] in self._range:
            self._range = None
        self.credits[places] = np.nan

    def with_credit(self, steps: np.ndarray) -> np.ndarray:
        """Places of steps, with NONE in place of those without credit."""
        return np.where(np.isnan(self.credits[steps]), NONE, steps)

    def learn(self, update: int, rows: np.ndarray, scaling: Scaling | None) -> None:
        """Learn the rule, once per update; rows: all of the ring."""

    def rewards(self, places: np.ndarray, rows: np.ndarray, scaling: Scaling | None) -> np.ndarray:
        """What learners are paid for the steps in these places, float32."""
        if self._range is None:
            found = np.fmin.reduce(self.credits), np.fmax.reduce(self.credits)
            self._range = float(found[0]), float(found[1])
        smallest, largest = self._range
        if smallest == largest:
            return np.zeros(places.shape, np.float32)
        return (self.credits[places] - smallest) / (largest - smallest)

    def largest_reward(self, stored: float) -> float:
        return 1.0
