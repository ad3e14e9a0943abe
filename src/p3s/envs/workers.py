"""Environment copies spread over worker processes, for environments that take long to step.

Every worker holds a part of the copies as `LocalCopies` would, in the order of the learners, so a
group in workers steps, resets and is snapshotted to the bit like one in this process, and a
snapshot of either continues in the other. Observations, actions, rewards and discounts are in
memory that all processes share; a message per step says which copies are to step, and the answer
which episodes ended.

A worker that dies, or takes too long for a step, may be replaced. The episodes of its copies are
lost: each begins its next one, and takes the step that was due there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from p3s.envs import Adapter, describe, functional_of, why_on_host
from p3s.envs.copies import Environments, LocalCopies, Steps, join_snapshots, split_snapshot
from p3s.envs.shared_memory import Layout, attach, memory_file, shared_size
from p3s.envs.worker import Held
from p3s.errors import TrainingStopped, UserError, note
from p3s.machine import equal_parts
from p3s.types import Episode, Transition
from p3s.workers.remote import CannotWork, Remote, WorkerDied, pickled

START_SECONDS = 60.0
"""What a worker with a limit may take in addition to begin or to take up its work."""


def make_copies(
    make: Callable[[], Adapter],
    copies: range,
    seed: int,
    num_workers: int = 0,
    restarts: int = 0,
    step_limit: float | None = None,
) -> Environments:
    """These copies of a population's environments: on a device, in this process or in workers."""
    if num_workers == 0:
        example = make()
        on_device = _device_copies(example, copies, seed)
        return on_device or LocalCopies(make, len(copies), seed, copies.start, example)
    try:
        return WorkerCopies(make, len(copies), seed, num_workers, restarts, step_limit)
    except CannotWork as error:
        raise UserError(f"env_workers must be 0 for this environment: {error}") from error


def _device_copies(example: Adapter, copies: range, seed: int) -> Environments | None:
    """Copies on a device, if the environment is functional; if something is in the way, say so."""
    functional, reason = functional_of(example.env), why_on_host(example)
    if reason is not None:
        note(f"copies of {describe(example)} are stepped one by one: {reason}")
    if functional is None or reason is not None:
        return None
    from p3s.envs.device_copies import DeviceCopies

    example.close()
    return DeviceCopies(functional, example.env_spec, copies, seed)


class WorkerCopies:
    """N copies in other processes, stepped side by side.

    restarts: how many workers may be replaced, in all; step_limit: seconds for a step of one copy.
    """

    def __init__(
        self,
        make: Callable[[], Adapter],
        num_copies: int,
        seed: int,
        num_workers: int,
        restarts: int = 0,
        step_limit: float | None = None,
    ) -> None:
        self._parts = equal_parts(num_copies, min(num_workers, num_copies))
        self._orders = [pickled((Held, make, len(part), seed, part.start)) for part in self._parts]
        self._restarts_left, self._step_limit = restarts, step_limit
        self.workers: list[Remote] = []
        self._unanswered = False
        self.continued = True
        self.lost: list[int] = []
        self._num_episodes = np.zeros(num_copies, np.int64)
        self._shared: dict[str, np.ndarray] = {}
        try:
            for order in self._orders:
                self.workers.append(Remote(order))
            (self.spec, self.exact_resume), *_ = self._ask_all("about")
        except BaseException as error:
            self.close()
            if isinstance(error, WorkerDied):
                raise UserError(
                    f"a process for environments died at its start ({error})"
                ) from error
            raise
        shape, dtype = self.spec.observation.shape, self.spec.observation.dtype
        self.observations = np.zeros((num_copies, *shape), dtype)

    def start(self) -> None:
        self._collect_observations(self._ask_all("start"))
        self._num_episodes[:] = 1

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        if not self._shared:
            self._share(self._layout(actions))
        self._shared["actions"][:] = actions
        orders = {}
        for index, part in enumerate(self._parts):
            own = active[(active >= part.start) & (active < part.stop)] - part.start
            if own.size:
                orders[index] = own
        ended: list[Episode] = [
            episode for episodes in self._ask("step", orders) for episode in episodes
        ]
        for episode in ended:
            self._num_episodes[episode.copy] += 1
        before, shared = self.observations, self._shared
        self.observations = np.array(shared["observations"])
        steps = Transition(
            before[active],
            actions[active],
            shared["rewards"][active],
            shared["discounts"][active],
            shared["next_observations"][active],
        )
        return Steps(steps, ended)

    def _layout(self, actions: np.ndarray) -> Layout:
        """The form of the shared memory, which depends on the actions."""
        count, seen = len(self.observations), self.observations
        observations = seen.shape, seen.dtype.str
        return {
            "actions": (actions.shape, actions.dtype.str),
            "observations": observations,
            "next_observations": observations,
            "rewards": ((count,), np.dtype(np.float64).str),
            "discounts": ((count,), np.dtype(np.float32).str),
        }

    def _share(self, layout: Layout) -> None:
        """Make the shared memory, with what was in the one before."""
        handle, path = memory_file(shared_size(layout))
        try:
            shared = attach(path, layout)
            shared["observations"][:] = self.observations
            for name, values in self._shared.items():
                shared[name][:] = values
            self._shared = shared
            self._ask_all("share", [(path, layout)] * len(self.workers))
        finally:
            os.close(handle)
            # Those who have it open keep it; nobody else can leave it behind.
            with contextlib.suppress(OSError):
                os.unlink(path)

    def snapshot(self) -> dict[str, Any]:
        return join_snapshots(self._ask_all("snapshot"))

    def resume(self, values: dict[str, Any]) -> None:
        if not values:
            return
        resumed = self._ask_all("resume", split_snapshot(values, self._parts))
        self._collect_observations([observations for observations, _, _ in resumed])
        self._num_episodes = np.concatenate([counts for _, counts, _ in resumed])
        self.continued = all(continued for _, _, continued in resumed)

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
        deadlines = {
            index: self._send(index, what, argument) for index, argument in arguments.items()
        }
        answers: dict[int, Any] = {}
        deaths: dict[int, WorkerDied] = {}
        errors: list[Exception] = []
        for index, deadline in deadlines.items():
            try:
                answers[index] = self._receive(index, deadline)
            except WorkerDied as error:
                deaths[index] = error
            except (TrainingStopped, CannotWork) as error:
                errors.append(error)
        self._unanswered = False
        if errors and (isinstance(errors[0], TrainingStopped) or what == "about"):
            raise errors[0]
        if errors:
            raise TrainingStopped(f"the environments cannot {what}: {errors[0]}") from errors[0]
        for index, death in deaths.items():
            if what == "about":
                raise death
            self._replace(index, death)
            # A replacement has the shared memory already.
            again = {} if what == "share" else {index: arguments[index]}
            answers |= zip(again, self._ask(what, again), strict=True)
        return [answers.get(index) for index in arguments]

    def _send(self, index: int, what: str, argument: Any) -> float | None:
        """When the answer to a message is overdue, if ever."""
        copies = len(argument) if what == "step" else len(self._parts[index])
        with contextlib.suppress(WorkerDied):  # there will be no answer
            self.workers[index].send(what, *(() if argument is None else (argument,)))
        if self._step_limit is None or what in ("snapshot", "share"):
            return None
        more = START_SECONDS if what in ("about", "resume") else 0.0
        return time.monotonic() + copies * self._step_limit + more

    def _receive(self, index: int, deadline: float | None) -> Any:
        return self.workers[index].receive(deadline)

    def _replace(self, index: int, death: WorkerDied) -> None:
        """A new worker in the place of one that died, with new episodes in all of its copies."""
        part = self._parts[index]
        own = slice(part.start, part.stop)
        whose = f"learner {part[0]}" if len(part) == 1 else f"learners {part[0]} to {part[-1]}"
        died = f"the process with the environments of {whose} died ({death})"
        self.workers[index].close()
        if self._restarts_left == 0:
            raise TrainingStopped(died) from death
        self._restarts_left -= 1
        note(f"{died}: restarted, and its episodes are lost; {self._restarts_left} restarts left")
        self.workers[index] = Remote(self._orders[index])
        try:
            self._receive(index, self._send(index, "about", None))  # its start is not a step
        except WorkerDied as again:
            self._replace(index, again)
            return
        if self._num_episodes[part.start]:
            self.lost += part
            counts = self._num_episodes[own]
            (seen,) = self._ask("begin_again", {index: counts})
            counts += 1
            self.observations = self.observations.copy()
            self.observations[own] = seen
            if self._shared:
                self._shared["observations"][own] = seen
        if self._shared:
            self._share(
                {name: (array.shape, array.dtype.str) for name, array in self._shared.items()}
            )
