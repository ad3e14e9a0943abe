"""What a logger is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from p3s.machine import needed
from p3s.runs.files import write_text
from p3s.runs.loggers.scalars import scalars_of

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each stream, in their order."""
FILE = "loggers.json"
"""What a run is called in the tools that it is logged to."""
ROWS = "rows"
"""Tag of the number of a row in its stream: rows/metrics, rows/evaluations, ..."""
Table = tuple[list[str], list[list[Any]]]
"""Columns and lines."""


class Logger:
    """A tool that shows runs.

    A resumed run writes the rows since its checkpoint again, bit for bit the same ones. Those that
    the tool has already are not sent again, and those that it has not are made up for.
    """

    name: str

    def begin(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> None:
        """Open the run, and send what it lacks of the rows up to the checkpoint's step."""
        self.rows = {stream: list(own) for stream, own in rows.items()}
        """All rows so far."""
        self._sent = self.open(path, config, rows, step)
        for stream, own in rows.items():
            for number, row in enumerate(own, start=1):
                self.add(stream, number, row)

    def add(self, stream: str, number: int, row: dict[str, Any]) -> None:
        """Send a row, unless the tool has it; the first row of a stream is number 1."""
        if number > len(self.rows[stream]):
            self.rows[stream].append(row)
        if number > self._sent.get(stream, 0):
            self.write(stream, number, row)

    def tables(self) -> Iterator[tuple[str, Table]]:
        """The streams that are left as tables when a run ends, unless they are empty."""
        for stream in ("evaluations", "lineage"):
            if self.rows[stream]:
                yield stream, table_of(stream, self.rows[stream])

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        """Begin or continue the run; how many rows of each stream are there already."""
        raise NotImplementedError

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        """Send one row."""
        raise NotImplementedError

    def flush(self) -> None:
        """A checkpoint is written."""

    def close(self, path: Path) -> None:
        """The process is done with the run, which may be resumed."""


def table_of(stream: str, rows: list[dict[str, Any]]) -> Table:
    """A table of these rows: the step, and a column for each tag."""
    lines = [{"step": row["step"], **scalars_of(stream, row)} for row in rows]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return columns, [[line.get(name) for name in columns] for line in lines]


def csv_text(table: Table) -> str:
    """A table as text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table[0], *table[1]])
    return text.getvalue()


def all_there(rows: Rows) -> dict[str, int]:
    """The answer of a tool that has every row up to the checkpoint."""
    return {stream: len(own) for stream, own in rows.items()}


def log_page(path: Path, module: Any, run: Any) -> None:
    """Add the run's page to a run of W&B, or of a tool that takes after it."""
    page = path / "report.html"
    if page.exists():
        artifact = module.Artifact(f"report-{run.id}", type="report")
        artifact.add_file(str(page))
        run.log_artifact(artifact)


def package(module: str, extra: str, logger: str | None = None) -> Any:
    """The package that a logger needs."""
    tool = module.partition(".")[0]
    return needed(f"--loggers {logger or tool} needs {tool}", extra, module)


def _names(path: Path) -> dict[str, Any]:
    """What the run is called in each tool."""
    try:
        return dict(json.loads((path / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def known_as(path: Path, tool: str) -> str | None:
    """What the run is called in a tool, if it has been there."""
    found = _names(path).get(tool)
    return found if isinstance(found, str) else None


def remember(path: Path, tool: str, name: str) -> None:
    """Note what the run is called in a tool."""
    write_text(path / FILE, json.dumps({**_names(path), tool: name}) + "\n")


def run_name(path: Path, config: dict[str, Any]) -> str:
    """Method, environment and seed, and the name of the folder."""
    env = (config.get("environment") or {}).get("id", "custom")
    method = f"{config['scheme']}-{config['algorithm']}"
    return f"{method} {env} seed {config['seed']} ({path.resolve().name})"
