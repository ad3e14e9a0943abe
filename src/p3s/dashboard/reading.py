"""Read the records of a run as they grow.

    look    nothing changed (inode, size, time)?      done
            the last row read is no longer there?     begin again: the file was cut back
            read from where the last whole row ended, row by row
            a last line without its end               is still being written, and waits
            a damaged row                             a note; looked at again when the file changes

Of a long record every second, fourth, ... row is kept, so memory and the page stay small. `clock`
counts what happened, so that a page that remembers a time can be told what is new since then.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from p3s.runs.checksums import parse_checked
from p3s.runs.files import open_unlinked
from p3s.runs.records import last_lines
from p3s.runs.rows import row_problem

LONGEST_ROW = 4 << 20
"""A longer line counts as damaged."""
MOST_BYTES = 1 << 30
"""How much of a record is read."""
MOST_ROWS, MOST_EVENTS = 1000, 4000
"""How many rows, and how many events, are kept."""

Row = dict[str, Any]
Shorten = Callable[[Row], tuple[list[Any] | None, list[list[Any]]]]
"""From a row to the numbers that are kept of it, and to the events that it tells of."""


def file_mark(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does; None if there is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Record:
    """The rows of a record, shortened, each with the time when it was read."""

    def __init__(self, path: Path, shorten: Shorten, clock: count[int]) -> None:
        self._path, self._shorten, self._clock = path, shorten, clock
        self._begin_again()

    def _begin_again(self) -> None:
        self._mark: tuple[int, int, int] | None = None
        self._end, self._lines = 0, 0
        self._last_start, self._last_checksum = 0, 0
        self._every, self._number = 1, 0
        self._rows: list[tuple[int, list[Any]]] = []
        self._events: list[tuple[int, list[Any]]] = []
        self._tail: tuple[int, list[Any] | None] = (0, None)
        self._began = next(self._clock)
        self.latest: Row = {}
        self.note: str | None = None

    def look(self, until: float) -> bool:
        """Read what is new; whether there is more, which a look after `until` finds."""
        mark = file_mark(self._path)
        if mark == self._mark:
            return False
        if mark is None:
            self._begin_again()
            return False
        try:
            with open_unlinked(self._path) as file:
                if not self._is_continued(file):
                    self._begin_again()
                more = self._read_on(file, until)
        except OSError as error:
            self._stop(f"cannot be read: {error.strerror or error}")
            more = False
        self._mark = None if more else mark
        return more

    def _is_continued(self, file: BinaryIO) -> bool:
        """Whether the last row read is where it was."""
        if os.fstat(file.fileno()).st_size < self._end:
            return False
        file.seek(self._last_start)
        row = file.read(self._end - self._last_start)
        return zlib.crc32(row) == self._last_checksum

    def _read_on(self, file: BinaryIO, until: float) -> bool:
        self.note = None
        while True:
            file.seek(self._end)
            chunk = file.read(LONGEST_ROW)
            lines = chunk.split(b"\n")[:-1]
            if not lines and len(chunk) == LONGEST_ROW:
                self._stop(f"line {self._lines + 1} is too long")
            if not lines or not all(map(self._take, lines)):
                return False
            if self._end > MOST_BYTES:
                self._stop(f"only its first {MOST_BYTES >> 20:,} MB are read")
                return False
            if len(chunk) < LONGEST_ROW or time.monotonic() > until:
                return len(chunk) == LONGEST_ROW

    def _take(self, line: bytes) -> bool:
        """Keep a row; whether it makes sense."""
        number, stream = self._lines + 1, self._path.stem
        try:
            row = parse_checked(line)
        except (ValueError, RecursionError):
            return self._stop(f"line {number} is damaged, only the rows before it are shown")
        problem = row_problem(row, stream)
        if problem is not None:
            return self._stop(f"line {number} {problem}, only the rows before it are shown")
        self._last_start, self._end = self._end, self._end + len(line) + 1
        self._last_checksum = zlib.crc32(line + b"\n")
        self._lines, self.latest = number, row
        self._keep(*self._shorten(row))
        return True

    def _stop(self, reason: str) -> bool:
        self.note = f"{self._path.name}: {reason}"
        return False

    def _keep(self, numbers: list[Any] | None, events: list[list[Any]]) -> None:
        now = next(self._clock)
        self._events += [(now, event) for event in events]
        if len(self._events) > MOST_EVENTS:
            self._began = now
            del self._events[: MOST_EVENTS // 2]
        if numbers is None:
            return
        self._tail = now, numbers
        if self._number % self._every == 0:
            self._rows.append((now, numbers))
            if len(self._rows) > MOST_ROWS:
                self._began, self._every = now, self._every * 2
                self._rows = self._rows[::2]
        self._number += 1

    def since(self, then: int) -> dict[str, Any]:
        """What is new for a page that was told everything until then; empty if nothing is."""
        news: dict[str, Any] = {}
        if then < self._began:
            then, news["anew"] = -1, True
        for name, kept in (("rows", self._rows), ("events", self._events)):
            first = bisect_right(kept, then, key=lambda entry: entry[0])
            if first < len(kept):
                news[name] = [entry for _, entry in kept[first:]]
        if self._tail[0] > then and self._rows and self._rows[-1][0] != self._tail[0]:
            news["tail"] = self._tail[1]
        return news


def last_rows(path: Path, stream: str) -> tuple[list[Row], str | None]:
    """The last two rows of a record from its end, and a note if there is damage."""
    try:
        with open_unlinked(path) as file:
            rows = [parse_checked(line) for line in last_lines(file, 2, LONGEST_ROW)]
        problem = next(filter(None, (row_problem(row, stream) for row in rows)), None)
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], f"{path.name}: cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError):
        return [], f"{path.name}: its last rows are damaged"
    return ([], f"{path.name}: its last row {problem}") if problem else (rows, None)


def is_regular(path: Path) -> bool:
    """Whether it is a file itself, not a link, a pipe or a device."""
    try:
        return stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False
