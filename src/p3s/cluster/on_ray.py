"""Shards as Ray actors, on the machines of a cluster or on this one.

A shard's transitions are an object in Ray's store: only their name comes here, and the other
shards fetch them from where they are. So a transition crosses the network once per other shard.
(Ray sends objects of less than 100 kB by way of this process.)

If a shard is lost, all stop (`ShardLost`), and `recovery.py` starts again from the last checkpoint.
Ray could restart an actor, but only from its constructor.
"""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from p3s.cluster.ray_library import (
    PlacementGroupSchedulingStrategy,
    RayError,
    RayTaskError,
    cloudpickle,
    connect,
    placement_group,
    ray,
    remove_placement_group,
)
from p3s.cluster.shard import Parcel, Shard, Told
from p3s.config.options import RunOptions
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.errors import ShardLost, UserError, note
from p3s.experience.data import Data
from p3s.learning import devices
from p3s.machine import available_cores, core_shares
from p3s.types import EnvSpec

SAID_AFTER = 2.0
"""Seconds of waiting for room before it is said."""
OTHERS_SECONDS = 60.0
"""In which the other shards may end their work after one has raised an error."""


class ShardActor:
    """A shard in a process of its own; jax starts with `begin`, on the cores named there."""

    def place(self) -> tuple[str, list[int]]:
        """The machine, and the cores that this process may use."""
        return ray.get_runtime_context().get_node_id(), available_cores()

    def begin(
        self,
        order: bytes,
        data: Data | None,
        cores: list[int],
        num_threads: int,
        num_devices: int,
    ) -> None:
        """Make the shard.

        The numbers of threads and devices decide how products are shared out, and so the last
        bits; they are the same in every shard, whatever its machine has.
        """
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        os.environ["PJRT_NPROC"] = str(num_threads)
        devices.prepare()
        jax.config.update("jax_num_cpu_devices", num_devices)
        self._shard = Shard(*pickle.loads(order), data=data)

    def play(self, until: int, end: int, *arrived: Parcel | None) -> tuple[Told, Parcel | None]:
        """Let the shard play; two values, so that the parcel can stay here until it is needed."""
        return self._shard.play_part(until, end, arrived)

    def catch_up(self, *arrived: Parcel | None) -> Told:
        """Let the shard learn from its last step."""
        return self._shard.catch_up_part(arrived)

    def do(self, what: str, *arguments: Any) -> Any:
        """Any other method of the shard."""
        return getattr(self._shard, what)(*arguments)


class RayPlaces:
    """Shards as actors."""

    def __init__(
        self,
        config: Config,
        make: Callable[[], Adapter],
        spec: EnvSpec,
        parts: list[range],
        data: Data | None,
    ) -> None:
        options = config.options
        connect(options.address)
        self._group = reserve(len(parts), options)
        actor: Any = ray.remote(ShardActor)
        self._actors = [
            actor.options(
                num_cpus=options.shard_cpus,
                num_gpus=options.shard_gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, index),
            ).remote()
            for index in range(len(parts))
        ]
        try:
            self._begin([_order(config, make, spec, part) for part in parts], data)
        except BaseException:
            self.close()
            raise

    def _begin(self, orders: list[bytes], data: Data | None) -> None:
        """Make the shards, each on cores of its own where a machine has several."""
        with losses():
            places = answers([actor.place.remote() for actor in self._actors])
        neighbors: dict[str, list[int]] = defaultdict(list)
        for index, (node, _) in enumerate(places):
            neighbors[node].append(index)
        cores: dict[int, list[int]] = {}
        for indices in neighbors.values():
            shares = core_shares(places[indices[0]][1], len(indices))
            cores.update(zip(indices, shares, strict=True))
        threads = int(os.environ.get("PJRT_NPROC", 0)) or len(available_cores())
        num_devices, shared = len(jax.local_devices()), ray.put(data)
        with losses():
            answers(
                [
                    actor.begin.remote(order, shared, cores[index], threads, num_devices)
                    for index, (actor, order) in enumerate(zip(self._actors, orders, strict=True))
                ]
            )

    def play(self, until: int, end: int, arrived: Sequence[Any]) -> tuple[list[Told], list[Any]]:
        with losses():
            pairs = [
                actor.play.options(num_returns=2).remote(until, end, *others)
                for actor, others in self._with_others(arrived)
            ]
            played = answers([told for told, _ in pairs])
        return played, [parcel for _, parcel in pairs]

    def catch_up(self, arrived: Sequence[Any]) -> list[Told]:
        with losses():
            return answers(
                [actor.catch_up.remote(*others) for actor, others in self._with_others(arrived)]
            )

    def _with_others(self, arrived: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """Every actor with the parcels of all shards; its own, which it has, is None."""
        for index, actor in enumerate(self._actors):
            yield actor, [None if i == index else parcel for i, parcel in enumerate(arrived)]

    def ask(self, index: int, what: str, *arguments: Any) -> Any:
        with losses():
            return ray.get(self._actors[index].do.remote(what, *arguments))

    def ask_all(self, what: str, *arguments: Sequence[Any]) -> list[Any]:
        with losses():
            return answers(
                [
                    actor.do.remote(what, *own)
                    for actor, *own in zip(self._actors, *arguments, strict=True)
                ]
            )

    def tell_all(self, what: str, *arguments: Any) -> list[Any]:
        with losses():
            shared = [ray.put(argument) for argument in arguments]
            return answers([actor.do.remote(what, *shared) for actor in self._actors])

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._group)


def _order(config: Config, make: Callable[[], Adapter], spec: EnvSpec, part: range) -> bytes:
    """What a shard is to be, for another process; functions of a script or notebook too."""
    try:
        return cloudpickle.dumps((config, make, spec, part))
    except Exception as error:
        raise UserError(
            f"engine must be local for this run: its environment cannot be pickled ({error})"
        ) from error


def answers(asked: list[Any]) -> list[Any]:
    """What all shards answer; if several raise, the error of the first, as in one process.

    Ray raises whichever error comes first.
    """
    try:
        return ray.get(asked)
    except RayTaskError:
        ray.wait(asked, num_returns=len(asked), timeout=OTHERS_SECONDS)
        return ray.get(asked)


@contextmanager
def losses() -> Iterator[None]:
    """Errors of shards as a run knows them: what a shard raised, or that it is gone."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise type(error.cause)(str(error.cause)) from None
        raise
    except RayError as error:
        reason = str(error).strip().split("\n")[0]
        raise ShardLost(f"a shard is lost: {reason}") from error


def reserve(count: int, options: RunOptions) -> Any:
    """Room for every shard, spread over the machines; UserError if there is none in time."""
    cpus, gpus, wait = options.shard_cpus, options.shard_gpus, options.cluster_wait
    asked = f"{count} shards of {cpus} CPU{'s' * (cpus > 1)}"
    asked += (f" and {gpus} GPU{'s' * (gpus > 1)}" if gpus else "") + " each"
    bundle: dict[str, float] = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    group = placement_group([bundle] * count, strategy="SPREAD")
    ready = group.wait(min(wait, SAID_AFTER))
    if not ready:
        note(f"waiting up to {wait:g} s for {asked}")
        ready = group.wait(max(wait - SAID_AFTER, 0.1))
    if ready:
        return group
    remove_placement_group(group)
    there, free = ray.cluster_resources(), ray.available_resources()
    found = ", ".join(
        f"{there.get(kind, 0):g} {kind}s ({free.get(kind, 0):g} free)" for kind in bundle
    )
    machines = sum(1 for node in ray.nodes() if node["Alive"])
    raise UserError(
        f"no room for {asked} after {wait:g} s: the cluster has {found} "
        f"on {machines} machine{'s' * (machines > 1)}"
    )
