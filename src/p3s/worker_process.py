"""Processes that work for a run: evaluations and environments.

    the run    WorkerProcess(module, *order)          starts `python -m module`
               .send(message), .receive()             pickled, over the worker's stdin and stdout
    the worker serve(begin)                           handle = begin(*order)
                                                      for every message: reply handle(message)

A worker is a Python process of its own, not a fork and not a spawned copy of the main script: it
imports p3s and what the order names, nothing else. It ends when its stdin does: with the run,
however that was killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from p3s.errors import TrainingStopped


class CannotWork(Exception):
    """A worker cannot do this work; the run's own process can."""


class WorkerDied(Exception):
    """A worker is gone."""


def pickled(*order: Any) -> bytes:
    """What a worker is to be told; CannotWork if it cannot be told."""
    try:
        return pickle.dumps(order)
    except Exception as error:
        raise CannotWork(f"its environment or algorithm cannot be pickled ({error})") from error


class WorkerProcess:
    """A worker as the run sees it."""

    def __init__(self, module: str, order: bytes) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self._send(order)
        except WorkerDied:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            _write(self.process.stdin, data)
        except (OSError, ValueError) as error:
            raise WorkerDied from error

    def send(self, message: Any) -> None:
        """Hand over a message; WorkerDied if nobody is there."""
        self._send(pickle.dumps(message))

    def receive(self) -> Any:
        """The answer to the oldest message without one.

        TrainingStopped and CannotWork are raised here as there; WorkerDied if nobody is there.
        """
        assert self.process.stdout is not None
        try:
            kind, value = pickle.loads(_read(self.process.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise WorkerDied from error
        if kind == "stopped":
            raise TrainingStopped(value)
        if kind == "cannot work":
            raise CannotWork(value)
        return value

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def close(self) -> None:
        """End it at once and let go of its pipes."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what could not be sent any more
                continue
        self.process.wait()


def serve(begin: Callable[..., Callable[[Any], Any]]) -> None:
    """Be a worker: `begin` gets the order and returns what answers a message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What an environment prints must not get between the answers.
    os.dup2(2, 1)
    try:
        order = _read(source)
        try:
            handle = begin(*pickle.loads(order))
        except Exception as error:
            handle = partial(_refuse, f"{type(error).__name__}: {error}")
        while True:
            _write(answers, pickle.dumps(_answer(handle, _read(source))))
    except (EOFError, BrokenPipeError):
        pass


def _refuse(reason: str, message: Any) -> Any:
    raise CannotWork(reason)


def _answer(handle: Callable[[Any], Any], message: bytes) -> tuple[str, Any]:
    try:
        return "done", handle(pickle.loads(message))
    except TrainingStopped as error:
        return "stopped", str(error)
    except CannotWork as error:
        return "cannot work", str(error)
    except Exception as error:
        return "cannot work", f"{type(error).__name__}: {error}"


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    length = int.from_bytes(pipe.read(8), "little")
    data = pipe.read(length)
    if length == 0 or len(data) < length:
        raise EOFError
    return data
