"""Worker processes that play episodes while the training goes on.

    one thread per worker: take a unit, write it to the worker's stdin, read the returns
    a worker that dies is replaced, and its unit is played again

A worker is a Python process of its own (`python -m p3s.evaluation.worker`), not a fork and not a
spawned copy of the main script: it imports p3s and what the pickled order names, nothing else.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import TrainingStopped
from p3s.evaluation.playing import Unit

MOST_DEATHS = 3
"""A unit whose workers died this often is given up."""


class CannotWork(Exception):
    """Workers cannot play for this run; this process can."""


class Workers:
    """A number of processes that play units."""

    def __init__(self, make: Callable[[], Adapter], algorithm: Algorithm, seed: int, count: int):
        try:
            pickled = pickle.dumps((make, algorithm, seed))
        except Exception as error:
            raise CannotWork(f"its environment or algorithm cannot be pickled ({error})") from error
        self._order = pickle.dumps(sys.path), pickled
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="evaluation")
        self._own = threading.local()
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self.processes: list[subprocess.Popen[bytes]] = []

    def submit(self, unit: Unit) -> Future[np.ndarray]:
        """Play a unit as soon as a worker is free."""
        return self._threads.submit(self._play, pickle.dumps(unit))

    def _play(self, unit: bytes) -> np.ndarray:
        for _ in range(MOST_DEATHS):
            try:
                process = getattr(self._own, "process", None)
                if process is None:
                    process = self._own.process = self._start()
                kind, value = _ask(process, unit)
            except (EOFError, OSError, pickle.UnpicklingError, ValueError):
                self._own.process = None
                continue
            if kind == "stopped":
                raise TrainingStopped(value)
            if kind == "cannot work":
                raise CannotWork(value)
            return value
        raise TrainingStopped(f"a worker for evaluations died {MOST_DEATHS} times at the same unit")

    def _start(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._closed.is_set():
                raise CannotWork("the run was closed")
            process = subprocess.Popen(
                [sys.executable, "-m", "p3s.evaluation.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            self.processes.append(process)
        for part in self._order:
            _send(process.stdin, part)
        return process

    def close(self) -> None:
        """End the workers; what they were playing is lost."""
        with self._starting:
            self._closed.set()
            for process in self.processes:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        self.processes = []


def _ask(process: subprocess.Popen[bytes], unit: bytes) -> tuple[str, Any]:
    _send(process.stdin, unit)
    return pickle.loads(read(process.stdout))


def _send(pipe: IO[bytes] | None, data: bytes) -> None:
    assert pipe is not None
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def read(pipe: IO[bytes] | None) -> bytes:
    """The next message from a pipe; EOFError if the other side is gone."""
    assert pipe is not None
    length = int.from_bytes(pipe.read(8), "little")
    data = pipe.read(length)
    if length == 0 or len(data) < length:
        raise EOFError
    return data


def reply(pipe: IO[bytes], kind: str, value: Any) -> None:
    """Answer a unit."""
    _send(pipe, pickle.dumps((kind, value)))
