"""What learners learn from: a replay that all share, or the latest steps of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from p3s.experience.normalization import Scaling
from p3s.types import Array, EnvSpec, Transition

if TYPE_CHECKING:
    from p3s.experience.replay import Ring


class Batches(NamedTuple):
    """Rows for one update."""

    rows: np.ndarray
    """(minibatches, rows, columns)."""
    scaling: Scaling | None
    """What their observations are still to be normalized by."""


class Experience(Protocol):
    """Where transitions go, and where updates take theirs from."""

    @property
    def ring(self) -> Ring | None:
        """Rows that checkpoints write in segments; None if a snapshot holds everything."""
        ...

    def add(self, transitions: Transition, copies: Sequence[int], ended: Sequence[int]) -> None:
        """Store one step of these copies, (copies, ...); ended: whose episode ended with it."""
        ...

    def take(self, update: int, num_batches: int, num_pending: int) -> Batches | None:
        """What this update learns from.

        num_pending: as if this many more had been added; None if one of those is needed.
        """
        ...

    def observations(self, rng: np.random.Generator) -> np.ndarray:
        """Normalized observations for the chief's distances, (batch, ...)."""
        ...

    def largest_reward(self) -> float | None:
        """The largest reward in size that is remembered; None if only the latest steps are."""
        ...

    @staticmethod
    def unpack(spec: EnvSpec, rows: Array) -> Any:
        """What a scheme learns from, made from rows on the device."""
        ...

    def cut(self) -> None:
        """The episodes in progress will not continue."""
        ...

    def describe(self) -> str:
        """One line about the memory that it takes."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        ...

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        ...
