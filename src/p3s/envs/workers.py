"""Environment copies spread over worker processes, for environments that take long to step.

Every worker holds a part of the copies as `LocalCopies` would, in the order of the learners, so a
group in workers steps, resets and is snapshotted to the bit like one in this process, and a
snapshot of either continues in the other. Observations, actions, rewards and discounts are in
memory that all processes share; a message per step says which copies are to step, and the answer
which episodes ended.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p3s.envs import Adapter
from p3s.envs.copies import PER_COPY, Environments, LocalCopies, Steps, state_name
from p3s.errors import TrainingStopped, UserError
from p3s.types import Episode, Transition
from p3s.worker_process import CannotWork, WorkerDied, WorkerProcess, pickled

MODULE = "p3s.envs.worker"
MEMORY = Path("/dev/shm")
"""Where files are memory, on Linux."""
Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shape and type of every shared array."""


def attach(path: str, layout: Layout) -> dict[str, np.ndarray]:
    """The arrays of a shared file."""
    arrays, start = {}, 0
    for name, (shape, dtype) in layout.items():
        # As a plain array, which is faster to index than a memmap.
        arrays[name] = np.memmap(path, np.dtype(dtype), "r+", start, shape).view(np.ndarray)
        start += -(-arrays[name].nbytes // 64) * 64
    return arrays


def shared_size(layout: Layout) -> int:
    """Bytes of a shared file, every array at a multiple of 64."""
    sizes = (np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in layout.values())
    return sum(-(-size // 64) * 64 for size in sizes)


def _memory_file(size: int) -> tuple[int, str]:
    """An open file of this size, in memory if there is room for it."""
    for folder in (MEMORY, None):
        if folder is not None and not folder.is_dir():
            continue
        handle, path = tempfile.mkstemp(prefix="p3s-", dir=folder)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)  # a full disk is noticed here, not at a write
            else:
                os.truncate(handle, size)
        except OSError:
            os.close(handle)
            os.unlink(path)
            continue
        return handle, path
    raise UserError(f"there is no room for {size:,} bytes that processes share: env_workers 0")


def make_copies(
    make: Callable[[], Adapter], num_copies: int, seed: int, num_workers: int
) -> Environments:
    """Copies in this process, or in workers."""
    if num_workers == 0:
        return LocalCopies(make, num_copies, seed)
    try:
        return WorkerCopies(make, num_copies, seed, num_workers)
    except CannotWork as error:
        raise UserError(f"env_workers must be 0 for this environment: {error}") from error


class WorkerCopies:
    """N copies in other processes, stepped side by side."""

    def __init__(
        self, make: Callable[[], Adapter], num_copies: int, seed: int, num_workers: int
    ) -> None:
        parts = np.array_split(np.arange(num_copies), min(num_workers, num_copies))
        self._parts = [(int(part[0]), int(part[-1]) + 1) for part in parts]
        orders = [pickled((make, end - first, seed, first)) for first, end in self._parts]
        self.workers: list[WorkerProcess] = []
        self._unanswered = False
        self.continued = True
        try:
            for order in orders:
                self.workers.append(WorkerProcess(MODULE, order))
            (self.spec, self.exact_resume), *_ = self._ask_all("about")
        except BaseException as error:
            self.close()
            if isinstance(error, WorkerDied):
                raise UserError("a process for environments died at its start") from error
            raise
        shape, dtype = self.spec.observation.shape, self.spec.observation.dtype
        self.observations = np.zeros((num_copies, *shape), dtype)
        self._shared: dict[str, np.ndarray] = {}

    def start(self) -> None:
        self._collect_observations(self._ask_all("start"))

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        if not self._shared:
            self._share(actions)
        shared = self._shared
        shared["actions"][:] = actions
        orders = {}
        for index, (first, end) in enumerate(self._parts):
            own = active[(active >= first) & (active < end)] - first
            if own.size:
                orders[index] = own
        ended: list[Episode] = [
            episode for episodes in self._ask("step", orders) for episode in episodes
        ]
        before = self.observations
        self.observations = np.array(shared["observations"])
        steps = Transition(
            before[active],
            actions[active],
            shared["rewards"][active],
            shared["discounts"][active],
            shared["next_observations"][active],
        )
        return Steps(steps, ended)

    def _share(self, actions: np.ndarray) -> None:
        """Make the shared memory, whose form depends on the actions."""
        count, seen = len(self.observations), self.observations
        observations = seen.shape, seen.dtype.str
        layout: Layout = {
            "actions": (actions.shape, actions.dtype.str),
            "observations": observations,
            "next_observations": observations,
            "rewards": ((count,), np.dtype(np.float64).str),
            "discounts": ((count,), np.dtype(np.float32).str),
        }
        handle, path = _memory_file(shared_size(layout))
        try:
            self._shared = attach(path, layout)
            self._shared["observations"][:] = seen
            self._ask_all("share", [(path, layout)] * len(self.workers))
        finally:
            os.close(handle)
            # Those who have it open keep it; nobody else can leave it behind.
            with contextlib.suppress(OSError):
                os.unlink(path)

    def snapshot(self) -> dict[str, Any]:
        parts = self._ask_all("snapshot")
        if not parts[0]:
            return {}
        values = {name: np.concatenate([part[name] for part in parts]) for name in PER_COPY}
        for (first, end), part in zip(self._parts, parts, strict=True):
            for index in range(end - first):
                if state_name(index) in part:
                    values[state_name(first + index)] = part[state_name(index)]
        return values

    def resume(self, values: dict[str, Any]) -> None:
        if not values:
            return
        parts = []
        for first, end in self._parts:
            part = {name: values[name][first:end] for name in PER_COPY}
            for index in range(end - first):
                if state_name(first + index) in values:
                    part[state_name(index)] = values[state_name(first + index)]
            parts.append(part)
        resumed = self._ask_all("resume", parts)
        self._collect_observations([observations for observations, _ in resumed])
        self.continued = all(continued for _, continued in resumed)

    def _collect_observations(self, parts: list[np.ndarray]) -> None:
        self.observations = np.concatenate(parts)
        if self._shared:
            self._shared["observations"][:] = self.observations

    def close(self) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.close()

    # ------------------------------------------------------------------ messages

    def _ask_all(self, what: str, arguments: list[Any] | None = None) -> list[Any]:
        """The answers of all workers, in their order."""
        given = arguments or [None] * len(self.workers)
        return self._ask(what, dict(enumerate(given)))

    def _ask(self, what: str, arguments: dict[int, Any]) -> list[Any]:
        """The answers of some workers, by their index; all are read before an error is raised."""
        if self._unanswered:
            raise TrainingStopped(
                "a step of the environments was interrupted: load the last checkpoint or save"
            )
        self._unanswered = True
        for index, argument in arguments.items():
            self._send(index, what, argument)
        answers, errors = [], []
        for index in arguments:
            try:
                answers.append(self._receive(index))
            except (TrainingStopped, CannotWork) as error:
                errors.append(error)
        self._unanswered = False
        if not errors:
            return answers
        if isinstance(errors[0], TrainingStopped) or what == "about":
            raise errors[0]
        raise TrainingStopped(f"the environments cannot {what}: {errors[0]}") from errors[0]

    def _send(self, index: int, what: str, argument: Any) -> None:
        try:
            self.workers[index].send((what, argument))
        except WorkerDied as error:
            raise self._death(index) from error

    def _receive(self, index: int) -> Any:
        try:
            return self.workers[index].receive()
        except WorkerDied as error:
            raise self._death(index) from error

    def _death(self, index: int) -> TrainingStopped:
        first, end = self._parts[index]
        whose = f"learner {first}" if end - first == 1 else f"learners {first} to {end - 1}"
        return TrainingStopped(f"the process with the environments of {whose} died")
