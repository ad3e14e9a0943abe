"""An object in a process of its own: environments, or a player of evaluations.

    the run      Remote(pickled((make, *arguments)))       starts `python -m p3s.workers`
                 .send(method, *arguments), .receive()     pickled, over its stdin and stdout
    the process  made = make(*arguments)
                 for every message: reply made.method(*arguments)
                 at the end: made.close()

A worker is a Python process of its own, not a fork and not a spawned copy of the main script: it
imports what the order names, nothing else. It ends when its stdin does: with the run, however that
was killed, at the latest GRACE seconds later. It ignores the signals that end the run, which still
needs it for its last checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

from p3s.errors import TrainingStopped

GRACE = 1.0
"""Seconds in which a worker may close what it has opened."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether a worker that does not answer is still alive."""


class CannotWork(Exception):
    """A worker cannot do this work; the run's own process can."""


class WorkerDied(Exception):
    """A worker is gone; the message says how it ended."""


def pickled(message: Any) -> bytes:
    """What a worker is to be told; CannotWork if it cannot be told."""
    try:
        return pickle.dumps(message)
    except Exception as error:
        raise CannotWork(f"its environment or algorithm cannot be pickled ({error})") from error


class Remote:
    """The object as the run sees it."""

    def __init__(self, order: bytes) -> None:
        # -P: a file of the current folder must not hide a module of the standard library.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "p3s.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            # Signals of the terminal are for the run alone.
            process_group=None if os.name == "nt" else 0,
        )
        assert self.process.stdout is not None
        # Not buffered: what can be read is what can be waited for.
        self._answers = os.fdopen(self.process.stdout.fileno(), "rb", buffering=0, closefd=False)
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
            raise WorkerDied(self._ending()) from error

    def send(self, method: str, *arguments: Any) -> None:
        """Ask for a method; WorkerDied if nobody is there, CannotWork if it cannot be told."""
        self._send(pickled((method, arguments)))

    def receive(self, deadline: float | None = None) -> Any:
        """The answer to the oldest message without one.

        TrainingStopped and CannotWork are raised here as there; WorkerDied if nobody is there.
        deadline: by time.monotonic(); a worker that has not answered by then is killed.
        """
        self._wait(deadline)
        try:
            kind, value = pickle.loads(_read(self._answers))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise WorkerDied(self._ending()) from error
        if kind == "stopped":
            raise TrainingStopped(value)
        if kind == "cannot work":
            raise CannotWork(value)
        return value

    def _wait(self, deadline: float | None) -> None:
        """Wait until there is an answer, or nobody who could give one.

        A process that has died may have left others behind that hold its end of the pipe.
        """
        if os.name == "nt":  # pipes cannot be waited for there, and there is no limit
            return
        while not self._readable(min(LOOK_EVERY, _seconds_until(deadline))):
            if _seconds_until(deadline) <= 0:
                self.kill()
                raise WorkerDied("it took longer than the limit for a step")
            if self.process.poll() is not None and not self._readable(0.0):
                raise WorkerDied(self._ending())

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._answers], [], [], seconds)[0])

    def _ending(self) -> str:
        """How a process ended that no longer answers."""
        try:
            code = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "it closed its pipes"
        if code >= 0:
            return f"exit code {code}"
        known = {number.value: number.name for number in signal.Signals}
        return f"killed by {known.get(-code, f'signal {-code}')}"

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def dismiss(self) -> None:
        """Let it close what it has opened, and end."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # what could not be sent any more
            self.process.stdin.close()

    def end(self, deadline: float) -> None:
        """Wait until it has ended by itself; kill it at a deadline by time.monotonic().

        One that is stuck in C code cannot even notice that it was dismissed.
        """
        try:
            self.process.wait(_seconds_until(deadline))
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()

    def close(self) -> None:
        """Dismiss it; end it if that takes long."""
        self.dismiss()
        self.end(time.monotonic() + GRACE)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _seconds_until(deadline: float | None) -> float:
    return math.inf if deadline is None else max(0.0, deadline - time.monotonic())


def serve() -> None:
    """Make the object that the run orders, and call its methods."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What an environment prints must not get between the answers.
    os.dup2(2, 1)
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, messages), daemon=True).start()
    if (order := messages.get()) is None:
        return
    made, problem = None, ""
    try:
        make, *arguments = pickle.loads(order)
        made = make(*arguments)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    with contextlib.suppress(BrokenPipeError):
        while (message := messages.get()) is not None:
            answer = ("cannot work", problem) if made is None else _answer(made, message)
            _write(answers, pickle.dumps(answer))
    if made is not None:
        made.close()


def _listen(source: IO[bytes], messages: queue.SimpleQueue[bytes | None]) -> None:
    """Take messages until nobody sends any; then there is little time left."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            messages.put(_read(source))
    messages.put(None)
    time.sleep(GRACE)
    os._exit(0)


def _answer(made: Any, message: bytes) -> tuple[str, Any]:
    try:
        method, arguments = pickle.loads(message)
        return "done", getattr(made, method)(*arguments)
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
    length = int.from_bytes(_read_exactly(pipe, 8), "little")
    if length == 0:
        raise EOFError
    return _read_exactly(pipe, length)


def _read_exactly(pipe: IO[bytes], length: int) -> bytes:
    """This many bytes, in as many pieces as they come in; EOFError if there are fewer."""
    pieces = list[bytes]()
    while length:
        piece = pipe.read(length)
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
