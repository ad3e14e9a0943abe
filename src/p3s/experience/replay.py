"""The replay that all learners share: a ring of rows.

What an update draws follows from the run's seed and the update's number, so it is known before
the step whose transitions it may or may not need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s import keys
from p3s.errors import UserError
from p3s.experience import Batches
from p3s.experience.normalization import Unnormalized, normalize
from p3s.experience.rows import empty_rows, fields, pack, record, unpack_transitions
from p3s.types import Array, EnvSpec, Transition


class Ring:
    """A ring buffer of rows; the oldest are overwritten when it is full."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
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
        """Append rows, (count, columns)."""
        for row in rows:
            self.rows[self.num_added % self.capacity] = row
            self.num_added += 1

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], coming: int = 0
    ) -> np.ndarray | None:
        """Rows drawn uniformly with replacement, shape + (columns,).

        coming: draw as if this many more rows had been added; None if one of those is drawn.
        """
        filled = min(self.num_added + coming, self.capacity)
        indices = rng.integers(0, filled, shape)
        if coming and ((indices - self.num_added) % self.capacity < coming).any():
            return None
        return self.rows[indices]


class Replay:
    """The shared experience of a run."""

    def __init__(
        self, capacity: int, spec: EnvSpec, batch_size: int, seed: int, normalizer: Unnormalized
    ) -> None:
        self._note = check_memory(capacity, spec)
        self._spec, self._batch_size, self._seed = spec, batch_size, seed
        self._normalizer = normalizer
        self.ring = Ring(empty_rows(capacity, spec))

    def add(self, transitions: Transition, ended: bool) -> None:
        self.ring.add(pack(self._spec, transitions))

    def take(self, update: int, num_batches: int, coming: int) -> Batches | None:
        rng = keys.generator(self._seed, "replay", update)
        rows = self.ring.sample(rng, (num_batches, self._batch_size), coming)
        return None if rows is None else Batches(rows, self._normalizer.scaling)

    def observations(self, rng: np.random.Generator) -> np.ndarray:
        rows = self.ring.sample(rng, (self._batch_size,))
        assert rows is not None
        return normalize(fields(rows, self._spec)["observation"], self._normalizer.scaling)

    @staticmethod
    def unpack(spec: EnvSpec, rows: Array) -> Transition:
        return unpack_transitions(spec, rows)

    def cut(self) -> None:
        pass  # a transition is whole in itself

    def describe(self) -> str:
        return self._note

    def snapshot(self) -> dict[str, Any]:
        return {}  # checkpoints write the ring, in segments

    def resume(self, values: dict[str, Any]) -> None:
        pass


def memory_needed(capacity: int, spec: EnvSpec) -> int:
    """Bytes that a replay takes when it is full."""
    return capacity * record(spec).itemsize


def check_memory(capacity: int, spec: EnvSpec) -> str:
    """One line about the memory that the replay will take; UserError if it will not fit."""
    needed, free = memory_needed(capacity, spec), available_memory()
    if free is not None and needed > free:
        fits = int(0.8 * free) // record(spec).itemsize
        raise UserError(
            f"a replay of {capacity:,} transitions takes {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free: --buffer-size {fits} would fit"
        )
    return f"replay: {capacity:,} transitions, up to {needed / 1e6:,.0f} MB"


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, where the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            values = dict(line.split(":", 1) for line in lines)
        return int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
