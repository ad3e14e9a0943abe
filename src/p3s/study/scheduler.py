"""Run the cells of a study, several at a time, each in its own process, here or on a cluster.

    while some cells are neither complete nor failed
        if a process has ended: record how, and free its cores
        if cores are free: lock the next cell and start it
        show the progress

A cell's lock belongs to its process. Schedulers that share a folder therefore never run the same
cell, and no lock outlives its process. A scheduler that finds all remaining cells locked waits.

Every process gets the same number of cores: that number can change the last bits of a result, so
it must not depend on which cores happen to be free.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from p3s.report.failures import Failure, read_failure, write_failure
from p3s.study.cells import Cell
from p3s.study.folder import Progress, StudyFolder
from p3s.study.launching import CellProcess, Launcher, LocalLauncher
from p3s.study.presence import Presence
from p3s.study.worker import STOPPED

POLL_SECONDS = 0.2
"""Time between two polls of the processes; a poll costs a few system calls."""
SHOW_SECONDS = 2.0
"""Time between two readings of the records of running cells."""
RETRY_LOCK_SECONDS = 2.0
"""Time before another attempt to lock a cell that another process holds."""
PRINTED_BYTES = 4000
"""How much of a process's output is kept with its failure."""


class Display(Protocol):
    """Where a scheduler shows the progress of its study."""

    def event(self, cell: Cell, progress: Progress) -> None:
        """Show that a cell has changed its state."""

    def refresh(self, progress: dict[str, Progress]) -> None:
        """Show the progress of all cells, by id."""

    def say(self, text: str) -> None:
        """Show a message about the whole study."""


@dataclass(frozen=True)
class SchedulerOptions:
    """How to run a study."""

    jobs: int
    retry_failed: bool = False
    discard_checkpoints: bool = False


@dataclass
class _Running:
    cell: Cell
    process: CellProcess
    share: Any


class Scheduler:
    """Runs cells until all are complete or failed, or until a signal asks to stop."""

    def __init__(
        self,
        folder: StudyFolder,
        cells: list[Cell],
        options: SchedulerOptions,
        display: Display,
        launcher: Launcher | None = None,
    ) -> None:
        self._launcher = launcher or LocalLauncher(options.jobs)
        self._folder, self._options, self._display = folder, options, display
        self._progress = {cell.id: folder.progress(cell) for cell in cells}
        self._retrying = {
            cell.id
            for cell in cells
            if options.retry_failed and self._progress[cell.id].state == "failed"
        }
        self._waiting = [cell for cell in cells if not self._is_settled(cell)]
        self._not_before: dict[str, float] = {}
        self._shares = list(self._launcher.shares)
        self._running: list[_Running] = []
        self._signals: list[int] = []
        self._num_signals_handled = 0

    def run(self) -> int:
        """Run the cells; the exit code is 0 if all are complete, else 1, or 128 + the signal.

        UserError if another scheduler is at work there and locks cannot keep the two apart.
        """
        next_show = 0.0
        with catching_signals(self._signals), Presence(self._folder.path) as presence:
            while True:
                presence.beat()
                self._reap()
                self._obey_signals()
                if not self._signals:
                    self._start_waiting()
                if not self._running and (self._signals or not self._waiting):
                    break
                if time.monotonic() >= next_show:
                    self._refresh()
                    next_show = time.monotonic() + SHOW_SECONDS
                time.sleep(POLL_SECONDS)
        self._refresh()
        if self._signals:
            return 128 + self._signals[0]
        return int(any(each.state != "complete" for each in self._progress.values()))

    # ------------------------------------------------------------------ starting

    def _is_settled(self, cell: Cell) -> bool:
        state = self._progress[cell.id].state
        return state == "complete" or (state == "failed" and cell.id not in self._retrying)

    def _start_waiting(self) -> None:
        now = time.monotonic()
        for cell in list(self._waiting):
            if not self._shares:
                return
            if self._not_before.get(cell.id, 0.0) <= now:
                self._try_to_start(cell)

    def _try_to_start(self, cell: Cell) -> None:
        """Start a cell, unless another process is running it or has settled it meanwhile."""
        lock = self._folder.lock(cell)
        if lock is None:
            self._not_before[cell.id] = time.monotonic() + RETRY_LOCK_SECONDS
            return
        self._waiting.remove(cell)
        try:
            failed = read_failure(self._folder.failure(cell)) is not None
            if self._folder.is_complete(cell) or (failed and cell.id not in self._retrying):
                self._note(cell)
                return
            self._folder.failure(cell).unlink(missing_ok=True)
            self._retrying.discard(cell.id)
            self._start(cell, lock)
        finally:
            os.close(lock)

    def _start(self, cell: Cell, lock: int) -> None:
        share = self._shares.pop(0)
        order = {
            "run": str(self._folder.run(cell)),
            "failure": str(self._folder.failure(cell)),
            "config": cell.config.to_json(),
            "discard_checkpoints": self._options.discard_checkpoints,
        }
        process = self._launcher.launch(order, share, lock, self._folder.log(cell))
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{process.pid}\n".encode(), 0)
        self._running.append(_Running(cell, process, share))
        before = self._progress[cell.id]
        self._tell(cell, Progress("running", before.step, before.score, before.steps_per_second))

    # ------------------------------------------------------------------ ending

    def _reap(self) -> None:
        for running in list(self._running):
            code = running.process.poll()
            if code is None:
                continue
            self._running.remove(running)
            self._shares.append(running.share)
            self._note_end(running.cell, code)

    def _note_end(self, cell: Cell, code: int) -> None:
        settled = self._folder.progress(cell, locked=False).state in ("complete", "failed")
        if not settled and code != STOPPED and not self._signals:
            self._record_death(cell, code)
        self._note(cell)

    def _record_death(self, cell: Cell, code: int) -> None:
        """Record the failure of a process that was killed or crashed before it could do so."""
        with self._folder.log(cell).open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - PRINTED_BYTES, 0))
            printed = log.read().decode(errors="replace")
        step = self._folder.progress(cell, locked=False).step or None
        failure = Failure(f"the process {how_it_ended(code)}", printed, step)
        write_failure(self._folder.failure(cell), failure)

    def _note(self, cell: Cell) -> None:
        """Read and show the progress of a cell that no process holds."""
        self._tell(cell, self._folder.progress(cell, locked=False))

    def _tell(self, cell: Cell, progress: Progress) -> None:
        self._progress[cell.id] = progress
        self._display.event(cell, progress)

    def _refresh(self) -> None:
        """Read the progress of the cells that may have changed, and show it."""
        for running in self._running:
            cell = running.cell
            self._progress[cell.id] = self._folder.progress(cell, locked=True)
        for cell in self._waiting:
            if cell.id in self._not_before:
                self._progress[cell.id] = self._folder.progress(cell)
        self._display.refresh(self._progress)

    # ------------------------------------------------------------------ signals

    def _obey_signals(self) -> None:
        """On the first signal the processes write a checkpoint; the second kills them."""
        if len(self._signals) == self._num_signals_handled:
            return
        first = self._num_signals_handled == 0 and len(self._signals) == 1
        self._num_signals_handled = len(self._signals)
        for running in self._running:
            running.process.send_signal(signal.SIGTERM if first else signal.SIGKILL)
        if first and self._running:
            self._display.say("stopping: cells write a checkpoint first (interrupt again to kill)")


@contextlib.contextmanager
def catching_signals(received: list[int]) -> Iterator[None]:
    """Note the signals that ask to stop, in place of stopping."""

    def receive(number: int, frame: Any) -> None:
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_it_ended(code: int) -> str:
    """What the exit code of a process says of its end."""
    if code >= 0:
        return f"ended with exit code {code}"
    memory = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"
