"""Workers that play episodes while the training goes on.

one thread per worker: take a unit, hand it over, wait for the returns
a worker that dies is replaced, and its unit is played again
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

import jax
import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import TrainingStopped
from p3s.evaluation.playing import Player, Unit
from p3s.learning import devices
from p3s.workers.remote import GRACE, CannotWork, Remote, WorkerDied, pickled

MOST_DEATHS = 3
"""A unit whose workers died this often is given up."""


def player_elsewhere(
    make: Callable[[], Adapter], algorithm: Algorithm, seed: int, num_devices: int
) -> Player:
    """A player in a process of its own; it makes an environment at once, to fail early."""
    # As many devices as the run has, since they decide how products are shared out.
    devices.prepare(num_devices)
    # Every action is waited for: a hand-over to another thread would double its time.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    player = Player(make, algorithm, seed)
    player.envs.append(make())
    return player


class Workers:
    """A number of processes that play units."""

    def __init__(
        self, make: Callable[[], Adapter], algorithm: Algorithm, seed: int, count: int
    ) -> None:
        self._order = pickled((player_elsewhere, make, algorithm, seed, len(jax.local_devices())))
        self._units: SimpleQueue[tuple[Unit, Future[np.ndarray]] | None] = SimpleQueue()
        self._closed = False
        self._starting = threading.Lock()
        self.started: list[Remote] = []
        # Daemons: a script that ends does not wait for episodes that nobody will see.
        self._threads = [threading.Thread(target=self._attend, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, unit: Unit) -> Future[np.ndarray]:
        """Play a unit as soon as a worker is free."""
        future: Future[np.ndarray] = Future()
        self._units.put((unit, future))
        return future

    def _attend(self) -> None:
        """Hand units to one worker, until there are none."""
        worker: Remote | None = None
        while (item := self._units.get()) is not None:
            unit, future = item
            how = ""
            for _ in range(MOST_DEATHS):
                try:
                    worker = worker or self._start()
                    worker.send("play", unit)
                    future.set_result(worker.receive())
                    break
                except WorkerDied as error:
                    how = str(error)
                    if worker is not None:
                        worker.close()
                    worker = None
                except Exception as error:
                    future.set_exception(error)
                    break
            else:
                died = f"a worker for evaluations died {MOST_DEATHS} times at the same unit ({how})"
                future.set_exception(TrainingStopped(died))

    def _start(self) -> Remote:
        with self._starting:
            if self._closed:
                raise CannotWork("the run was closed")
            self.started.append(Remote(self._order))
            return self.started[-1]

    def close(self) -> None:
        """End the workers; what they were playing is lost."""
        with self._starting:
            self._closed = True
            for worker in self.started:
                worker.dismiss()
        deadline = time.monotonic() + GRACE
        for worker in self.started:
            worker.end(deadline)  # a thread waits for its worker, however long that takes
        for _ in self._threads:
            self._units.put(None)
        for thread in self._threads:
            thread.join()
        for worker in self.started:
            worker.close()
