"""Processes for the cells of a study."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from p3s.machine import available_cores, core_shares

WORKER = "p3s.study.worker"
"""The module that runs a cell."""


class CellProcess(Protocol):
    """The process that runs a cell."""

    @property
    def pid(self) -> int:
        """Its number, for people who look for it."""
        ...

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Tell it to stop."""
        ...


class Launcher(Protocol):
    """Starts processes; each takes one of the shares until it ends."""

    shares: list[Any]

    def launch(self, order: dict[str, Any], share: Any, lock: int, log: Path) -> CellProcess:
        """Start a process with its order; the cell's lock is held as long as it runs."""
        ...


class LocalLauncher:
    """Processes on this machine, each with its share of the cores."""

    def __init__(self, jobs: int, module: str = WORKER) -> None:
        self.shares = core_shares(available_cores(), jobs)
        self._module = module

    def launch(
        self, order: dict[str, Any], share: list[int], lock: int, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a worker on these cores; it inherits the lock."""
        order = {**order, "scheduler": os.getpid()}
        with log.open("ab") as printed:
            return start_worker(order, share, printed.fileno(), [lock], self._module)


def start_worker(
    order: dict[str, Any],
    cores: list[int],
    printed: int,
    inherited: list[int],
    module: str = WORKER,
) -> subprocess.Popen[bytes]:
    """A worker on these cores with its order, which prints to an open file."""
    threads = str(len(cores))
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", module],
        stdin=subprocess.PIPE,
        stdout=printed,
        stderr=printed,
        pass_fds=inherited,
        # Its own process group shields it from the terminal's Ctrl-C: the scheduler stops it.
        process_group=0,
        env={
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "PJRT_NPROC": threads,
        },
    )
    with contextlib.suppress(AttributeError, ProcessLookupError):
        os.sched_setaffinity(process.pid, cores)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()
    return process
