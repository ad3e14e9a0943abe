"""The replay of a run over shards, as checkpoints see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.cluster.places import Places
from p3s.experience.replay import Ring


class SharedReplay:
    """The replay as checkpoints see it."""

    def __init__(self, places: Places, capacity: int, note: str) -> None:
        self.ring = RemoteRing(places, capacity)
        self._note = note

    def describe(self) -> str:
        """One line about the memory that it takes."""
        return f"{self._note}, in every shard"


class RemoteRing(Ring):
    """A replay's ring in the shards: rows are read from the first, and loaded into all."""

    def __init__(self, places: Places, capacity: int) -> None:
        rows: Any = RemoteRows(places, capacity)
        super().__init__(rows)
        self._places = places

    def load(self, start: int, data: bytes) -> None:
        self._places.tell_all("load_segment", start, data)


class RemoteRows:
    """The rows of a ring, fetched when they are asked for."""

    def __init__(self, places: Places, capacity: int) -> None:
        self._places, self._capacity = places, capacity

    def __len__(self) -> int:
        return self._capacity

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._places.ask(0, "segment", rows.start or 0, rows.stop)
