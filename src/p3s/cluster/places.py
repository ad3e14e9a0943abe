"""Where shards live: in this process, one after another, or on a Ray cluster (`on_ray.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from p3s.cluster.shard import Parcel, Shard, Told
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.experience.data import Data
from p3s.types import EnvSpec


class Places(Protocol):
    """The shards of a population, wherever they are."""

    def play(self, until: int, end: int, arrived: Sequence[Any]) -> tuple[list[Told], list[Any]]:
        """Let every shard play; and what they have for the next exchange.

        arrived: what the shards had for the exchange that is due now, if one is.
        """
        ...

    def catch_up(self, arrived: Sequence[Any]) -> list[Told]:
        """Let every shard learn from its last step."""
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


class LocalPlaces:
    """Shards in this process: what a cluster computes, to the bit."""

    def __init__(
        self,
        config: Config,
        make: Callable[[], Adapter],
        spec: EnvSpec,
        parts: list[range],
        data: Data | None,
    ) -> None:
        self.shards = [Shard(config, make, spec, part, data) for part in parts]

    def play(
        self, until: int, end: int, arrived: Sequence[Parcel]
    ) -> tuple[list[Told], list[Parcel | None]]:
        results = [shard.play_part(until, end, arrived) for shard in self.shards]
        return [told for told, _ in results], [parcel for _, parcel in results]

    def catch_up(self, arrived: Sequence[Parcel]) -> list[Told]:
        return [shard.catch_up_part(arrived) for shard in self.shards]

    def ask(self, index: int, what: str, *arguments: Any) -> Any:
        return getattr(self.shards[index], what)(*arguments)

    def ask_all(self, what: str, *arguments: Sequence[Any]) -> list[Any]:
        return [
            getattr(shard, what)(*own) for shard, *own in zip(self.shards, *arguments, strict=True)
        ]

    def tell_all(self, what: str, *arguments: Any) -> list[Any]:
        return [getattr(shard, what)(*arguments) for shard in self.shards]

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def make_places(
    config: Config,
    make: Callable[[], Adapter],
    spec: EnvSpec,
    parts: list[range],
    data: Data | None,
) -> Places:
    """The shards of a run, where its engine has them."""
    if config.options.engine == "local":
        return LocalPlaces(config, make, spec, parts, data)
    from p3s.cluster.on_ray import RayPlaces  # needs ray, an extra

    return RayPlaces(config, make, spec, parts, data)
