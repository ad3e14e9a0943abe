"""The replay that all learners share: a ring of packed transitions in one float32 array.

One row is one transition, so that a minibatch is one gather and one transfer to the device.
"""

from __future__ import annotations

import numpy as np

from p3s.errors import UserError
from p3s.types import EnvSpec


class Replay:
    """A ring buffer; the oldest rows are overwritten when it is full."""

    def __init__(self, capacity: int, spec: EnvSpec) -> None:
        self.rows = np.empty((capacity, spec.row_size), np.float32)
        self.num_added = 0

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """Rows that are filled."""
        return min(self.num_added, self.capacity)

    def add(self, rows: np.ndarray) -> None:
        """Append rows, (count, row_size)."""
        for row in rows:
            self.rows[self.num_added % self.capacity] = row
            self.num_added += 1

    def sample(
        self, generator: np.random.Generator, shape: tuple[int, ...], coming: int = 0
    ) -> np.ndarray | None:
        """Rows drawn uniformly with replacement, shape + (row_size,).

        coming: draw as if so many rows more had been added; None if one of those is drawn.
        """
        filled = min(self.num_added + coming, self.capacity)
        indices = generator.integers(0, filled, shape)
        if coming and ((indices - self.num_added) % self.capacity < coming).any():
            return None
        return self.rows[indices]


def memory_needed(capacity: int, spec: EnvSpec) -> int:
    """Bytes that a replay's array takes when it is full."""
    return capacity * spec.row_size * 4


def check_memory(capacity: int, spec: EnvSpec) -> str:
    """One line about the memory that the replay will take; UserError if it will not fit."""
    needed, free = memory_needed(capacity, spec), _available_memory()
    if free is not None and needed > free:
        fits = int(0.8 * free) // (spec.row_size * 4)
        raise UserError(
            f"a replay of {capacity:,} transitions takes {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free: --buffer-size {fits} would fit"
        )
    return f"replay: {capacity:,} transitions, up to {needed / 1e6:,.0f} MB"


def _available_memory() -> int | None:
    """Bytes that can be allocated without swapping, where the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            values = dict(line.split(":", 1) for line in lines)
        return int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
