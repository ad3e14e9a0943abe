"""Weights & Biases.

The run's id is kept in the run folder, so a resumed run is the same run there. Offline, what it has
is read from its own files; online, from its summary. `wandb sync` uploads what was logged offline.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from p3s.errors import note
from p3s.runs.loggers import base
from p3s.runs.loggers.base import ROWS, Logger, Rows
from p3s.runs.loggers.scalars import scalars_of

PROJECT = "p3s"
LONGEST_START = 20.0
"""Seconds in which W&B has to answer."""
BLOCK, HEADER, FILE_HEADER = 1 << 15, 7, 7
FULL, FIRST, LAST = 1, 2, 4
"""Kinds of records in a file of W&B, which is a LevelDB log."""


class WeightsAndBiases(Logger):
    """One run of the project p3s, or of WANDB_PROJECT."""

    name = "wandb"

    def __init__(self) -> None:
        self._wandb = base.package("wandb", "wandb")
        self._run: Any = None

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        name = base.known_as(path, self.name) or secrets.token_hex(4)
        base.remember(path, self.name, name)
        options: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "id": name,
            "name": base.run_name(path, config),
            "dir": str(path),
            "config": config,
            "resume": "allow",
        }
        known = rows_in_files(path, name)
        self._run = self._begin(options)
        self._run.define_metric("*", step_metric="step")
        summary = {} if self._run.offline else dict(self._run.summary)
        for stream in rows:
            known[stream] = max(known.get(stream, 0), int(summary.get(f"{ROWS}/{stream}", 0)))
        self._index = sum(known.values())
        return known

    def _begin(self, options: dict[str, Any]) -> Any:
        """The run, offline if it cannot be online."""
        quiet = self._wandb.Settings(silent=True, init_timeout=LONGEST_START)
        if "WANDB_MODE" in os.environ:
            return self._wandb.init(**options, settings=quiet)
        if "WANDB_API_KEY" in os.environ or _has_netrc():
            try:
                return self._wandb.init(**options, settings=quiet)
            except Exception as error:  # whatever a network does
                note(f"W&B cannot be reached ({str(error).splitlines()[0]}): logging offline")
                self._wandb.teardown()  # what is left of the attempt holds the run's id
        else:
            note("W&B is not logged in: logging offline; wandb sync uploads it")
        return self._wandb.init(**options, settings=quiet, mode="offline")

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        scalars = scalars_of(stream, row)
        values = {"step": row["step"], f"{ROWS}/{stream}": number, **scalars}
        self._run.log(values, step=self._index)
        self._index += 1

    def close(self, path: Path) -> None:
        if self._run is None:
            return
        for stream, (columns, lines) in self.tables():
            table = self._wandb.Table(columns=columns, data=lines)
            self._run.summary[f"table/{stream}"] = table
        base.log_page(path, self._wandb, self._run)
        self._run.finish()


def _has_netrc() -> bool:
    try:
        return "api.wandb.ai" in (Path.home() / ".netrc").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError):
        return False


def rows_in_files(path: Path, name: str) -> dict[str, int]:
    """How many rows of each stream the files of a run hold, of all its processes."""
    found: dict[str, int] = {}
    for values in history_of(path, name):
        for tag, value in values.items():
            kind, _, stream = tag.partition("/")
            if kind == ROWS:
                found[stream] = max(found.get(stream, 0), int(value))
    return found


def history_of(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Everything that a run has logged offline, in its order."""
    protocol = base.package("wandb.proto.wandb_internal_pb2", "wandb")
    for file in sorted((path / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb")):
        for data in _records(file.read_bytes()):
            record = protocol.Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                yield {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }


def _records(data: bytes) -> Iterator[bytes]:
    """The whole records of a LevelDB log; a torn one ends it."""
    place, parts = FILE_HEADER, bytearray()
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        content = data[place + HEADER : place + HEADER + size]
        if kind == 0 or len(content) < size:
            return
        parts = bytearray(content) if kind in (FULL, FIRST) else parts + content
        if kind in (FULL, LAST):
            yield bytes(parts)
        place += HEADER + size
