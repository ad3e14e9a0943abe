"""What a logger is."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from p3s.errors import UserError
from p3s.runs.files import write_text

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each stream, in their order."""
FILE = "loggers.json"
"""What a run is called in the tools that it is logged to."""
ROWS = "rows"
"""Tag of the number of a row in its stream: rows/metrics, rows/evaluations, ..."""
TABLES = ("evaluations", "lineage")
"""Streams that are left as tables when a run ends."""


class Logger:
    """A tool that shows runs.

    A resumed run writes the rows since its checkpoint again, bit for bit the same ones. Those that
    the tool has already are not sent again, and those that it has not are made up for.
    """

    name: str

    def begin(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> None:
        """Open the run, and send what it lacks of the rows up to the checkpoint's step."""
        self._sent = self.open(path, config, rows, step)
        for stream, own in rows.items():
            for number, row in enumerate(own, start=1):
                self.add(stream, number, row)

    def add(self, stream: str, number: int, row: dict[str, Any]) -> None:
        """Send a row, unless the tool has it; the first row of a stream is number 1."""
        if number > self._sent.get(stream, 0):
            self.write(stream, number, row)

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        """Begin or continue the run; how many rows of each stream are there already."""
        raise NotImplementedError

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        """Send one row."""
        raise NotImplementedError

    def flush(self) -> None:
        """A checkpoint is written."""

    def close(self, path: Path) -> None:
        """The process is done with the run, for now or for good."""


def needed(module: str, extra: str) -> Any:
    """A module of an extra; one line with the command that installs it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        tool = module.partition(".")[0]
        raise UserError(f"--log {tool} needs {tool}: pip install 'p3s[{extra}]'") from error


def known_as(path: Path, tool: str) -> str | None:
    """What the run is called in a tool, if it has been there."""
    try:
        found = json.loads((path / FILE).read_text(encoding="utf-8")).get(tool)
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def remember(path: Path, tool: str, name: str) -> None:
    """Note what the run is called in a tool."""
    try:
        known = json.loads((path / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    write_text(path / FILE, json.dumps({**known, tool: name}) + "\n")


def run_name(path: Path, config: dict[str, Any]) -> str:
    """Method, environment and seed, and the name of the folder."""
    env = (config.get("environment") or {}).get("id", "custom")
    method = f"{config['scheme']}-{config['algorithm']}"
    return f"{method} {env} seed {config['seed']} ({path.resolve().name})"
