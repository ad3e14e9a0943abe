"""Whether another scheduler is at work in a folder where locks do not work.

Schedulers may share a folder: the locks of its cells keep them apart. Where locks always succeed,
as on some network file systems, nothing would. So a scheduler holds a lock on a file of its own and
writes into it all the time. Who can lock the file of another and sees that it is written to all the
same knows that locks do not work there, and does not begin.

    locks/.scheduler-<name>    machine, process and a count that grows
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from p3s.errors import UserError
from p3s.fields.checks import is_whole
from p3s.runs.checksums import parse_json
from p3s.runs.files import read_bytes
from p3s.runs.locks import try_lock

PREFIX = ".scheduler-"
WATCH_SECONDS = 10.0
"""How long the file of another is watched, if it may still be written to."""
BEAT_SECONDS = 1.0
POLL_SECONDS = 0.05
MACHINE = f"{os.uname().nodename} {uuid.getnode():x}"


class Presence:
    """This scheduler's file in a folder, as long as it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "locks" / f"{PREFIX}{secrets.token_hex(8)}"
        self._lock = -1
        self._count = 0
        self._next_beat = 0.0

    def __enter__(self) -> Self:
        """Begin; UserError if another scheduler is there that locks cannot keep apart."""
        begun = self._file.with_name(f".new{self._file.name}")
        lock = try_lock(begun)
        assert lock is not None, "nobody else knows this name"
        self._lock = lock
        try:
            self.beat()
            begun.rename(self._file)  # others find it locked, and with its content
            for other in sorted(self._file.parent.glob(f"{PREFIX}*")):
                if other != self._file:
                    self._check(other)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
        os.close(self._lock)

    def beat(self) -> None:
        """Show that this scheduler is alive, now and then."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._count += 1
        about = {"machine": MACHINE, "process": os.getpid(), "count": self._count}
        with contextlib.suppress(OSError):  # a full disk is for the cells to tell
            os.pwrite(self._lock, f"{json.dumps(about)}\n".encode(), 0)
            os.fsync(self._lock)

    def _check(self, other: Path) -> None:
        """Refuse to begin beside another, unless its lock is held or it is gone."""
        try:
            lock = try_lock(other)
        except (UserError, OSError):
            return  # a link, or a file of somebody else: no scheduler of ours
        if lock is None:
            return  # locks work
        try:
            before = _content(other)
            if _has_ended(before) or not self._wait(lambda: _content(other) != before):
                other.unlink(missing_ok=True)
                return
            # Of two that begin at the same time one goes on: the other takes its file away.
            first = self._file.name < other.name
            if first and self._wait(lambda: not other.exists()):
                return
            if not other.exists():
                return
        finally:
            os.close(lock)
        raise UserError(
            f"another scheduler runs the study in {self._folder} ({_who(before)}), and locks do "
            "not work there: one at a time, or a folder on a disk of this machine"
        )

    def _wait(self, until: Callable[[], bool]) -> bool:
        """Whether it came true while we watched."""
        deadline = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < deadline:
            self.beat()
            if until():
                return True
            time.sleep(POLL_SECONDS)
        return False


def _content(file: Path) -> Any:
    """What a scheduler's file says; None if it is gone or damaged."""
    try:
        content = parse_json(read_bytes(file))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _has_ended(about: Any) -> bool:
    """Whether a process of this machine is known to be gone."""
    if about is None or about.get("machine") != MACHINE or not is_whole(about.get("process")):
        return False
    try:
        os.kill(about["process"], 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def _who(about: Any) -> str:
    known = {} if about is None else about
    machine = str(known.get("machine", "an unknown machine")).partition(" ")[0]
    return f"{machine}, process {known.get('process', 'unknown')}"
