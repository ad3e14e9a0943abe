"""Shards in this process, one after another: what a cluster computes, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from p3s.cluster.shard import Parcel, Played, Shard
from p3s.config import Config
from p3s.envs import Adapter


class Shards(Protocol):
    """The parts of a population, wherever they are."""

    def play(self, until: int, arrived: Sequence[Any]) -> tuple[list[Played], list[Any]]:
        """Let every shard step to this time step; and what they have for the next exchange.

        arrived: what the shards had for the exchange that is due now, if one is.
        """
        ...

    def catch_up(self, arrived: Sequence[Any]) -> list[dict[str, Any]]:
        """Let every shard learn from its last step; their counters."""
        ...

    def ask(self, index: int, what: str, *arguments: Any) -> Any:
        """What one shard answers."""
        ...

    def ask_all(self, what: str, *arguments: Sequence[Any]) -> list[Any]:
        """What all shards answer; of each argument, every shard gets its own."""
        ...

    def tell_all(self, what: str, *arguments: Any) -> list[Any]:
        """What all shards answer to the same."""
        ...

    def close(self) -> None:
        """End the shards."""
        ...


class LocalShards:
    """Shards in this process."""

    def __init__(self, config: Config, make: Callable[[], Adapter], parts: list[range]) -> None:
        self._shards = [Shard(config, make, part) for part in parts]

    def play(
        self, until: int, arrived: Sequence[Parcel]
    ) -> tuple[list[Played], list[Parcel | None]]:
        results = [shard.play(until, arrived) for shard in self._shards]
        return [played for played, _ in results], [parcel for _, parcel in results]

    def catch_up(self, arrived: Sequence[Parcel]) -> list[dict[str, Any]]:
        return [shard.catch_up(arrived) for shard in self._shards]

    def ask(self, index: int, what: str, *arguments: Any) -> Any:
        return getattr(self._shards[index], what)(*arguments)

    def ask_all(self, what: str, *arguments: Sequence[Any]) -> list[Any]:
        return [
            getattr(shard, what)(*own) for shard, *own in zip(self._shards, *arguments, strict=True)
        ]

    def tell_all(self, what: str, *arguments: Any) -> list[Any]:
        return [getattr(shard, what)(*arguments) for shard in self._shards]

    def close(self) -> None:
        for shard in self._shards:
            shard.close()
