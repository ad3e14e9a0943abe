"""Workers that play episodes while the training goes on.

one thread per worker: take a unit, hand it over, wait for the returns
a worker that dies is replaced, and its unit is played again
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import TrainingStopped
from p3s.evaluation.playing import Unit
from p3s.worker_process import CannotWork, WorkerDied, WorkerProcess, pickled

MOST_DEATHS = 3
"""A unit whose workers died this often is given up."""


class Workers:
    """A number of processes that play units."""

    def __init__(
        self, make: Callable[[], Adapter], algorithm: Algorithm, seed: int, count: int
    ) -> None:
        self._order = pickled(make, algorithm, seed)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="evaluation")
        self._own = threading.local()
        self._closed = False
        self._starting = threading.Lock()
        self.started: list[WorkerProcess] = []

    def submit(self, unit: Unit) -> Future[np.ndarray]:
        """Play a unit as soon as a worker is free."""
        return self._threads.submit(self._play, unit)

    def _play(self, unit: Unit) -> np.ndarray:
        for _ in range(MOST_DEATHS):
            try:
                worker = getattr(self._own, "worker", None) or self._start()
                worker.send(unit)
                return worker.receive()
            except WorkerDied:
                self._own.worker = None
        raise TrainingStopped(f"a worker for evaluations died {MOST_DEATHS} times at the same unit")

    def _start(self) -> WorkerProcess:
        with self._starting:
            if self._closed:
                raise CannotWork("the run was closed")
            self._own.worker = WorkerProcess("p3s.evaluation.worker", self._order)
            self.started.append(self._own.worker)
            return self._own.worker

    def close(self) -> None:
        """End the workers; what they were playing is lost."""
        with self._starting:
            self._closed = True
            for worker in self.started:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self.started:
            worker.close()
