"""The folder of a study, and the state of each of its cells.

study.toml           the definition, with the steps, seeds and preset in force
cells.json           method, environment, seed and published score of every run
references.json      what an idle and a random policy earn on each environment
runs/<id>/           ordinary run folders
failures/<id>.json   why a cell failed
logs/<id>.log        the output of its process
locks/<id>           held by the process that runs the cell, and released when it ends
locks/.scheduler-*   the schedulers at work there, see presence.py
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.errors import UserError
from p3s.fields.checks import is_number, is_whole
from p3s.report.failures import read_failure
from p3s.report.references import FILE, Reference, read_references, references_text
from p3s.runs.best_policy import LAST
from p3s.runs.checkpoints import step_folders
from p3s.runs.files import write_text
from p3s.runs.locks import no_locks, try_lock
from p3s.runs.opening import load_config
from p3s.runs.records import is_complete, last_row
from p3s.study.cells import Cell
from p3s.study.definition import Study


@dataclass(frozen=True)
class Progress:
    """The state of a cell (complete, failed, running, stopped or waiting) and its last records."""

    state: str
    step: int = 0
    score: float | None = None
    steps_per_second: float | None = None
    error: str | None = None


class StudyFolder:
    """The paths, states and locks of a study's cells."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, study: Study, cells: list[Cell]) -> None:
        """Write the definition and the list of cells."""
        for name in ("runs", "failures", "logs", "locks"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        content = {
            "study": study.name,
            "title": study.title,
            "steps": study.steps,
            "cells": [cell.to_json() for cell in cells],
        }
        with self._only_writer():
            write_text(self.path / "study.toml", study.resolved_text())
            write_text(self.path / "cells.json", json.dumps(content, indent=1) + "\n")

    @contextlib.contextmanager
    def _only_writer(self) -> Iterator[None]:
        """Keep other writers out: two schedulers may start at the same time."""
        with (self.path / "locks" / ".folder").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise no_locks(self.path, error) from error
            yield

    def references(self) -> dict[str, Reference]:
        """What policies that learn nothing earn, by environment; none if the file is damaged."""
        try:
            return read_references(self.path)
        except ValueError:
            return {}

    def add_reference(self, env: str, reference: Reference) -> None:
        """Add the reference of an environment to the file."""
        with self._only_writer():
            known = {**self.references(), env: reference}
            write_text(self.path / FILE, references_text(known))

    def run(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.path / "runs" / cell.id

    def log(self, cell: Cell) -> Path:
        """The file with the output of a cell's process."""
        return self.path / "logs" / f"{cell.id}.log"

    def failure(self, cell: Cell) -> Path:
        """The file that says why a cell failed, if it did."""
        return self.path / "failures" / f"{cell.id}.json"

    # ------------------------------------------------------------------ locks

    def lock(self, cell: Cell) -> int | None:
        """A file descriptor that holds the cell's lock; None if another process holds it."""
        return try_lock(self.path / "locks" / cell.id)

    def is_locked(self, cell: Cell) -> bool:
        """Whether a process is running the cell."""
        if not (self.path / "locks" / cell.id).exists():
            return False
        descriptor = try_lock(self.path / "locks" / cell.id, shared=True)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    # ------------------------------------------------------------------ states

    def is_complete(self, cell: Cell) -> bool:
        """Whether a cell has run to its end, even if its checkpoints were discarded afterward."""
        run, steps = self.run(cell), cell.config.options.steps
        if (run / "checkpoints").is_dir():
            names = [path.name for path in step_folders(run / "checkpoints")]
            return any(int(name.removeprefix("step-")) >= steps for name in names)
        return (run / LAST).exists() and is_complete(run, steps)

    def progress(self, cell: Cell, locked: bool | None = None) -> Progress:
        """The progress of a cell, from the last rows of its records.

        locked: whether a process holds the cell; None to find out.
        """
        run = self.run(cell)
        failure = read_failure(self.failure(cell))
        error = None if failure is None else failure.error
        try:
            metrics = last_row(run / "metrics.jsonl") or {}
            evaluation = last_row(run / "evaluations.jsonl") or {}
        except UserError as damage:
            return Progress("failed", error=str(damage))
        if self.is_locked(cell) if locked is None else locked:
            state, error = "running", None
        elif self.is_complete(cell):
            state, error = "complete", None
        elif error is not None:
            state = "failed"
        else:
            state = "stopped" if (run / "config.json").exists() else "waiting"
        return Progress(
            state,
            metrics["step"] if is_whole(metrics.get("step")) else 0,
            _number(evaluation.get("score")),
            _number(metrics.get("steps_per_second")),
            error,
        )

    def differences(self, cell: Cell) -> list[tuple[str, Any, Any]]:
        """The settings in which a run that has started differs from its cell: before, now."""
        if not (self.run(cell) / "config.json").exists():
            return []
        return _differences(load_config(self.run(cell)).to_json(), cell.config.to_json())

    def check_runs(self, cells: list[Cell]) -> None:
        """Refuse to continue a run that was started with settings other than the study's."""
        for cell in cells:
            for key, before, value in self.differences(cell):
                raise UserError(
                    f"{self.run(cell)} was started with {key} = {before}, but the study says "
                    f"{value}: choose another --out, or remove that run"
                )


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _differences(started: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The settings in which two configurations differ, besides their steps and notes."""
    found = []
    for key in {**started, **now}:
        before, value = started.get(key), now.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            found += _differences(before, value)
        elif key not in ("steps", "note") and before != value:
            found.append((key, before, value))
    return found
