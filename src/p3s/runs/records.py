"""The run folder: what was run, and what happened, as append-only JSON lines.

    config.json        resolved configuration, versions, machine
    metrics.jsonl      losses and training episodes, one row every metrics_period steps
    evaluations.jsonl  one row per evaluation
    lineage.jsonl      one row per period: what the chief saw and did
    scalars.jsonl      numbers of callbacks, if there are any
    checkpoints/       see checkpoints.py
    policy.safetensors the policy of the last evaluation's champion at the last checkpoint
    policy-best.safetensors   the one with the highest return at an evaluation, see best_policy.py
    report.html        a page to look at, see report/
    .lock              held by the process that trains the run

On resume every file is cut back to where it was at the checkpoint. Rows and config.json carry
checksums, see checksums.py.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from p3s.errors import TrainingStopped, UserError, note
from p3s.runs import files
from p3s.runs.best_policy import LAST, BestPolicy
from p3s.runs.checkpoints import Checkpoints, Snapshot
from p3s.runs.checksums import CHECKSUM, parse_checked, with_checksum
from p3s.runs.locks import try_lock
from p3s.runs.loggers import make_loggers
from p3s.runs.loggers.base import Logger
from p3s.runs.trust import signed

if TYPE_CHECKING:
    from p3s.experience.replay import Ring
    from p3s.policies.policy import Policy

STREAMS = ("metrics", "evaluations", "lineage", "scalars")
TAIL_BYTES = 1 << 14
"""How much of a record is read to find its last row; more if the row is longer."""


class Records:
    """Where the rows of a run go; here nowhere, for a run without a folder."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def append(self, stream: str, row: dict[str, Any]) -> None:
        """Write one row."""

    def snapshot(self) -> dict[str, Any]:
        """How long each stream is, in bytes."""
        return self._positions

    def resume(self, values: dict[str, Any]) -> None:
        """Remember how long each stream was at the checkpoint."""
        if not all(type(size) is int and size >= 0 for size in values.values()):
            raise UserError("the checkpoint does not say how long the records were")
        self._positions = values

    def close(self) -> None:
        """Close all files."""


class RunFolder(Records):
    """Records in a folder that one run writes to."""

    def __init__(self, path: Path, loggers: Iterable[str] = ()) -> None:
        super().__init__()
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._sizes: dict[str, int] = {}
        self._lock: int | None = None
        self._owner = b""
        self._counts: dict[str, int] = {}
        self._loggers = make_loggers(loggers)

    def claim(self) -> None:
        """Keep other processes from writing here, until `close` or the end of this one."""
        self._lock = try_lock(self.path / ".lock")
        if self._lock is None:
            raise UserError(f"{self.path} is in use: another process trains this run")
        self._owner = secrets.token_hex(16).encode()
        with files.telling("write", self.path / ".lock"):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, self._owner, 0)

    def _check_owner(self) -> None:
        """Stop if another process has claimed the folder in spite of the lock."""
        try:
            owner = (self.path / ".lock").read_bytes()
        except OSError:
            owner = b""
        if owner != self._owner:
            raise TrainingStopped(
                f"another process has begun to write to {self.path}: locks do not work there, "
                "and this process leaves the folder to the other"
            )

    def open(self, positions: dict[str, int], step: int) -> None:
        """Open the streams for appending, cut back to where they were at a checkpoint's step."""
        self.checkpoints.remove_leftovers()
        for stream in STREAMS:
            self._cut_back(stream, positions.get(stream, 0))
        files.sync(self.path)
        self._open_loggers(step)

    def _open_loggers(self, step: int) -> None:
        if not self._loggers:
            return
        found = {stream: self._file(stream) for stream in STREAMS}
        rows = {name: read_rows(file) if file.exists() else [] for name, file in found.items()}
        self._counts = {stream: len(own) for stream, own in rows.items()}
        config = read_config(self.path)
        self._tell_loggers(lambda logger: logger.begin(self.path, config, rows, step))

    def _tell_loggers(self, tell: Callable[[Logger], None]) -> None:
        """Tell all loggers; one that fails is left out from then on, and the run goes on."""
        for logger in list(self._loggers):
            try:
                tell(logger)
            except Exception as error:
                reason = (str(error).strip().splitlines() or [""])[0]
                note(f"{logger.name} stopped logging: {type(error).__name__}: {reason}")
                self._loggers.remove(logger)

    def _cut_back(self, stream: str, position: int) -> None:
        file = self._file(stream)
        self._sizes[stream] = position
        if stream == "scalars" and not file.exists() and position == 0:
            return
        files.append(file, b"")  # makes it, if it is new
        if file.stat().st_size < position:
            raise UserError(
                f"{file} is shorter than at the checkpoint: "
                "rows were lost, so the run cannot continue"
            )
        files.truncate(file, position)

    def _file(self, stream: str) -> Path:
        return self.path / f"{stream}.jsonl"

    def append(self, stream: str, row: dict[str, Any]) -> None:
        """Write one row, so that a kill of the process does not lose it."""
        self._check_owner()
        line = to_json_line(row).encode()
        files.append(self._file(stream), line)
        self._sizes[stream] += len(line)
        if self._loggers:
            number = self._counts[stream] = self._counts[stream] + 1
            self._tell_loggers(lambda logger: logger.add(stream, number, row))

    def save_policies(self, last: Policy, best: BestPolicy) -> None:
        """Write the policies of a checkpoint."""
        self._check_owner()
        last.save(self.path / LAST)
        best.save(self.path)

    def checkpoint(self, step: int, snapshot: Snapshot, ring: Ring | None) -> None:
        """Write a checkpoint."""
        self._check_owner()
        self.checkpoints.write(step, snapshot, ring)
        self._tell_loggers(lambda logger: logger.flush())

    def snapshot(self) -> dict[str, Any]:
        for stream, size in self._sizes.items():
            if size or stream != "scalars":
                files.sync(self._file(stream))
        return dict(self._sizes)

    def close(self) -> None:
        self._tell_loggers(lambda logger: logger.close(self.path))
        self._loggers = []
        if self._lock is not None:
            if os.pread(self._lock, 64, 0) == self._owner:
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None


def to_json_line(row: dict[str, Any]) -> str:
    """One line of strict JSON with a checksum; non-finite numbers become null."""
    return json.dumps(with_checksum(_strict(row)), allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a stream; a last line that is still being written is left out."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            rows.append(parse_checked(line))
        except ValueError as error:
            raise UserError(f"{path} is damaged in line {number}: {error}") from error
    return rows


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a record. A last one without its end is still being written and left out.

    Unless it holds a whole row: then only its end is damaged, and it is for the reader to say so.
    """
    *lines, rest = files.read_bytes(path).split(b"\n")
    try:
        json.JSONDecoder().raw_decode(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return lines
    return [*lines, rest]


def last_row(path: Path) -> dict[str, Any] | None:
    """The last whole row of a record, read from its end."""
    try:
        with files.open_regular(path) as file:
            lines = last_lines(file, 1)
        return parse_checked(lines[0]) if lines else None
    except OSError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is damaged in its last row: {error}") from error


def last_lines(file: BinaryIO, count: int, most: float = math.inf) -> list[bytes]:
    """The last whole lines of a record, read from its end, at most this many bytes."""
    size, length = file.seek(0, os.SEEK_END), TAIL_BYTES
    while True:
        file.seek(max(size - length, 0))
        # The piece after the last line end is still being written, or empty.
        lines = file.read(length).split(b"\n")[:-1]
        if length < size:
            lines = lines[1:]  # the first one may be the end of a line
        if len(lines) >= count or length >= min(size, most):
            return lines[-count:]
        length = int(min(4 * length, most))


def is_complete(path: Path, steps: int) -> bool:
    """Whether a run has reached this many steps, by its records."""
    last = last_row(path / "metrics.jsonl")
    step = 0 if last is None else last.get("step")
    if not isinstance(step, int):
        raise UserError(f"{path / 'metrics.jsonl'} is damaged in its last row: it has no step")
    return step >= steps


def write_config(path: Path, record: dict[str, Any]) -> None:
    """Write the config.json of a run folder."""
    text = json.dumps(with_checksum(signed(record)), indent=2) + "\n"
    files.write_text(path / "config.json", text)


def read_config(path: Path) -> dict[str, Any]:
    """The config.json of a run folder."""
    file = path / "config.json"
    if not file.is_file():
        raise UserError(f"{path} is not a run: it has no config.json")
    try:
        return parse_checked(files.read_bytes(file))
    except ValueError as error:
        hint = f" (if you changed it, remove its {CHECKSUM!r})" if "checksum" in str(error) else ""
        raise UserError(f"{file} is damaged: {error}{hint}") from error
