"""The replay of learners whose environments live on their device: a ring of rows there.

It draws what the host's replay draws: the places of an update's rows follow from seed, update and
number of rows, and are drawn on the host. A checkpoint holds the same segments, so a run can be
continued with either.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s import keys
from p3s.experience.replay import EVERYTHING, Replay, Ring, check_fits, memory_needed
from p3s.experience.rows import empty_rows, unpack
from p3s.machine import available_memory
from p3s.types import Array, EnvSpec

LARGEST = 1 << 31
"""Bytes up to which a replay is on the device unless the user says otherwise."""
PIECE = 1 << 14
"""Rows that are read at a time."""


class DeviceReplay(Replay):
    """A replay on the device, which compiled code writes and reads."""

    ring: DeviceRing

    def _make_ring(self, capacity: int) -> tuple[str, Ring]:
        needed, device = memory_needed(capacity, self._spec), jax.local_devices()[0]
        check_fits(capacity, needed, free_memory(device), " on the device")
        text = f"replay: {capacity:,} transitions, {needed / 1e6:,.0f} MB on the {device.platform}"
        return text, DeviceRing(DeviceRows(capacity, self._spec))

    def places(self, update: int, num_batches: int) -> np.ndarray:
        """Where the rows of an update's minibatches are, (minibatches, rows)."""
        rng = keys.generator(self._seed, "replay", update)
        shape = num_batches, self._batch_size
        drawn = self.ring.draw(rng, shape, own=EVERYTHING, num_own=self._num_own)
        assert drawn is not None  # no rows are pending
        return drawn

    def largest_reward(self) -> float | None:
        return float(_largest_reward(self._spec, self.ring.rows.array, self.ring.size))

    def resume(self, values: dict[str, Any]) -> None:
        """Nothing: all that it remembers are its rows."""


class DeviceRing(Ring):
    """A ring whose rows are on the device."""

    rows: DeviceRows  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(self, rows: DeviceRows) -> None:
        super().__init__(np.empty((0, 0)))
        self.rows = rows

    @property
    def row_bytes(self) -> int:
        return self.rows.num_columns * self.rows.dtype.itemsize

    def add(self, rows: np.ndarray) -> None:
        for row in rows:
            self.rows.write(self.num_added % self.capacity, row[None])
            self.num_added += 1

    def load(self, start: int, data: bytes) -> None:
        rows = np.frombuffer(data, self.rows.dtype).reshape(-1, self.rows.num_columns)
        self.rows.write(start, rows)


class DeviceRows:
    """Rows on the device, read and written from the host; their memory is taken when needed."""

    def __init__(self, capacity: int, spec: EnvSpec) -> None:
        example = empty_rows(0, spec)
        self._capacity, self.num_columns, self.dtype = capacity, example.shape[1], example.dtype
        self._array: jax.Array | None = None

    def __len__(self) -> int:
        return self._capacity

    @property
    def array(self) -> jax.Array:
        """All of them, (capacity, columns)."""
        if self._array is None:
            self._array = jnp.zeros((self._capacity, self.num_columns), self.dtype)
        return self._array

    @array.setter
    def array(self, array: jax.Array) -> None:
        self._array = array

    def write(self, start: int, rows: np.ndarray) -> None:
        """Put rows in the places from here on."""
        self._array = _write(self.array, rows, start)

    def __getitem__(self, places: slice | np.ndarray) -> np.ndarray:
        if isinstance(places, np.ndarray):
            return np.asarray(_gather(self.array, places))
        start, stop, _ = places.indices(self._capacity)
        pieces = [
            self._piece(first, min(first + PIECE, stop)) for first in range(start, stop, PIECE)
        ]
        return np.concatenate(pieces) if pieces else np.empty((0, self.num_columns), self.dtype)

    def _piece(self, start: int, stop: int) -> np.ndarray:
        size = min(PIECE, self._capacity)
        first = min(start, self._capacity - size)  # pieces of one size, so that one is compiled
        piece = np.asarray(_cut(self.array, first, size))
        return piece[start - first : stop - first]


def free_memory(device: Any) -> int | None:
    """Bytes that can be allocated on a device, where it tells; a CPU has the machine's."""
    if device.platform == "cpu":
        return available_memory()
    told: dict[str, Any] = device.memory_stats() or {}
    limit = told.get("bytes_limit")
    return None if limit is None else limit - told.get("bytes_in_use", 0)


@partial(jax.jit, donate_argnums=0)
def _write(array: Array, rows: Array, start: Array) -> Array:
    return jax.lax.dynamic_update_slice(array, rows, (start, 0))


@jax.jit
def _gather(array: Array, places: Array) -> Array:
    return array[places]


@partial(jax.jit, static_argnums=2)
def _cut(array: Array, start: Array, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, start, size)


@partial(jax.jit, static_argnums=0)
def _largest_reward(spec: EnvSpec, array: Array, size: Array) -> Array:
    filled = jnp.arange(len(array)) < size
    return jnp.where(filled, jnp.abs(unpack(spec, array)["reward"]), 0.0).max()
