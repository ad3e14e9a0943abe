"""One run that is followed: what it is, how it does, and its records once a page asks."""

from __future__ import annotations

import contextlib
import os
import re
import time
from itertools import count
from pathlib import Path
from typing import Any

from p3s.dashboard.finding import Found, failure_line, read_small
from p3s.dashboard.reading import Record, Row, file_mark, is_regular, last_rows
from p3s.dashboard.shortening import MOST_LEARNERS, now, numbers, shorteners
from p3s.errors import printable
from p3s.fields.checks import is_count, is_number
from p3s.report.results import RunResult, labels
from p3s.runs.checksums import parse_checked
from p3s.runs.locks import is_locked
from p3s.runs.tracebacks import FILE as TRACEBACK

FRESH = 60.0
"""Seconds for which a record that has grown shows a run in progress, where locks tell nothing."""
QUIET = 600.0
"""Seconds without a new row after which a run in progress gets a warning."""
FILM = re.compile(r"step-(\d{1,16})\.(mp4|gif)", re.ASCII)
MOST_FILMS = 1000
LONGEST_NAME, DEEPEST = 200, 50

STREAMS = ("evaluations", "lineage", "metrics")


class FollowedRun:
    """A run folder, looked at again and again."""

    def __init__(self, found: Found, number: int, clock: count[int]) -> None:
        self.found, self.number = found, number
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._config_mark: Any = None
        self._marks: Any = None
        self._ends: dict[str, list[Row]] = {}
        self._notes: dict[str, str] = {}
        self._failure: str | None = None
        self._film: str | None = None
        self._lock: tuple[Any, bool | None] = (None, None)
        self.config: dict[str, Any] = {}
        self.names: tuple[str, str, int] | None = None
        self.problem: str | None = None
        self.label = ""
        """Method, with what tells it from others; the dashboard knows the others."""
        self.summary: dict[str, Any] = {}
        self.changed = next(clock)
        """When the summary changed."""

    # ------------------------------------------------------------------ what it is

    def look_at_config(self) -> bool:
        """Read config.json if it is new; whether it was."""
        mark = file_mark(self.found.path / "config.json")
        if mark == self._config_mark:
            return False
        self._config_mark, self._marks, self._records = mark, None, {}
        try:
            config = parse_checked(read_small(self.found.path / "config.json"))
            if is_nested_deeply(config):
                raise ValueError("it is nested too deeply")
            self.names, self.config, self.problem = labels(config), config, None
        except (OSError, ValueError, RecursionError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            self.names, self.config = None, {}
            self.problem = printable(f"config.json: {reason}")[:LONGEST_NAME]
        return True

    def as_result(self) -> RunResult | None:
        """The run as the report knows it, without its records; None if it is not a run."""
        if self.names is None:
            return None
        cell, (method, env, seed) = self.found.cell, self.names
        return RunResult(
            self.found.path, cell.get("method", method), cell.get("env", env),
            cell.get("seed", seed), self.config, [],
        )  # fmt: skip

    # ------------------------------------------------------------------ how it does

    def look(self) -> None:
        """Update the summary."""
        path = self.found.path
        marks = [file_mark(path / f"{stream}.jsonl") for stream in STREAMS]
        failure = self.found.failure
        marks += [file_mark(path / TRACEBACK), file_mark(path / "videos")]
        marks += [None if failure is None else file_mark(failure)]
        if marks != self._marks:
            self._marks, self._notes = marks, {}
            self._failure = failure_line(failure) if marks[-1] else None
            self._film = self._last_film() if marks[-2] else None
            for stream in ("evaluations", "metrics"):
                self._ends[stream], note = last_rows(path / f"{stream}.jsonl", stream)
                if note is not None:
                    self._notes[stream] = note
        changes = [mark[2] for mark in marks[: len(STREAMS)] if mark is not None]
        changed = max(changes, default=0) / 1e9
        summary = self._describe(changed)
        if summary != self.summary:
            self.summary, self.changed = summary, next(self._clock)

    def _describe(self, changed: float) -> dict[str, Any]:
        metrics, evaluations = self._ends["metrics"], self._ends["evaluations"]
        latest = evaluations[-1] if evaluations else {}
        step = max(row["step"] for row in [{"step": 0}, *metrics[-1:], *evaluations[-1:]])
        steps = self.config["steps"]
        state = self._state(step >= steps, changed)
        result = self.as_result()
        assert result is not None
        folder = os.path.relpath(self.found.path, self.found.root)
        return {
            "id": self.number,
            "method": self.label[:LONGEST_NAME],
            "env": result.env[:LONGEST_NAME],
            "seed": result.seed,
            "folder": printable(self.found.root.name if folder == "." else folder)[-LONGEST_NAME:],
            "state": state,
            "step": step,
            "steps": steps,
            "score": numbers([latest.get("score")])[0],
            "rate": _rate(metrics) if state == "running" else None,
            "changed": round(changed),
            "learners": self._num_learners(),
            "film": self._film,
            "notes": self._warnings(state, changed),
        }

    def _num_learners(self) -> int:
        """How many learners the configuration speaks of; the records know better."""
        number = self.config["scheme_fields"].get("num_learners")
        return min(number, MOST_LEARNERS) if is_count(number) and number > 0 else 1

    def _state(self, complete: bool, changed: float) -> str:
        if self._in_use(changed):
            return "running"
        if complete:
            return "complete"
        failed = self._failure is not None or is_regular(self.found.path / TRACEBACK)
        return "failed" if failed else "stopped"

    def _in_use(self, changed: float) -> bool:
        """Whether a process trains the run: its lock file names an owner, and is locked.

        A lock that nobody holds is not asked again before the file changes: the question itself
        would be in the way of who begins to hold it.
        """
        file = self.found.path / ".lock"
        mark = file_mark(file)
        if mark is None or mark[1] == 0:
            return False
        if self._lock != (mark, False):
            self._lock = mark, is_locked(file)
        held = self._lock[1]
        return time.time() - changed < FRESH if held is None else held

    def _warnings(self, state: str, changed: float) -> list[str]:
        failed = self._failure is not None and state not in ("running", "complete")
        found = [self._failure or ""] if failed else []
        if state == "failed" and is_regular(self.found.path / TRACEBACK):
            found.append(f"Where it was raised is in {TRACEBACK} in the run folder.")
        if state == "running" and changed and time.time() - changed > QUIET:
            found.append("It is running, but has written no row for more than ten minutes.")
        latest = self._ends["metrics"][-1] if self._ends["metrics"] else {}
        lost = latest.get("lost_episodes")
        if isinstance(lost, list) and lost:
            found.append("Episodes were lost recently: a process with environments died.")
        # Who reads all of a record knows better where it is damaged.
        read = {stream: record.note for stream, record in self._records.items() if record.note}
        return [printable(line)[:500] for line in [*found, *(self._notes | read).values()]]

    # ------------------------------------------------------------------ its films

    def _last_film(self) -> str | None:
        """The name of the film of the latest step."""
        names = list[str]()
        with contextlib.suppress(OSError), os.scandir(self.found.path / "videos") as entries:
            for entry, _ in zip(entries, range(MOST_FILMS), strict=False):
                if FILM.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
        return max(names, key=lambda name: int(name[5:-4]), default=None)

    def film(self, name: str) -> Path | None:
        """The file of a film of this run."""
        return self.found.path / "videos" / name if FILM.fullmatch(name) else None

    # ------------------------------------------------------------------ its records

    def look_at_records(self, streams: tuple[str, ...], until: float) -> bool:
        """Read on in these records; whether there is more than the time allowed."""
        shorten, more = shorteners(self.config), False
        for stream in streams:
            if stream not in self._records:
                path = self.found.path / f"{stream}.jsonl"
                self._records[stream] = Record(path, shorten[stream], self._clock)
            before = self._records[stream].note
            more |= self._records[stream].look(until)
            if self._records[stream].note != before:
                self.look()
        return more

    def since(self, then: int, streams: tuple[str, ...]) -> dict[str, Any]:
        """What is new in these records."""
        read = {stream: self._records[stream] for stream in streams}
        news = {stream: found for stream, record in read.items() if (found := record.since(then))}
        if "metrics" in news:
            news["metrics"] |= {"now": now(read["metrics"].latest)}
        return news


def is_nested_deeply(value: Any) -> bool:
    """Whether containers lie so deep in each other that to compare or to print them may fail."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _rate(metrics: list[Row]) -> float | int | None:
    """Steps per second between the last two rows, or since the beginning."""
    if not metrics:
        return None
    seconds = [row.get("seconds") for row in metrics]
    if len(metrics) == 2 and all(map(is_number, seconds)):
        passed, steps = seconds[1] - seconds[0], metrics[1]["step"] - metrics[0]["step"]  # type: ignore[operator]
        if passed > 0 and steps >= 0:
            return numbers([steps / passed])[0]
    return numbers([metrics[-1].get("steps_per_second")])[0]
