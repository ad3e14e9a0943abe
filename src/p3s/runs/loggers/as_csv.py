"""CSV: a table for each stream, written anew from the records at every checkpoint."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from p3s.runs.files import make_folder, write_text
from p3s.runs.loggers.base import Logger, Rows
from p3s.runs.loggers.scalars import scalars_of


class CSV(Logger):
    """csv/metrics.csv, csv/evaluations.csv, ... in the run folder."""

    name = "csv"

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        self._folder, self._rows = path / "csv", {stream: list(own) for stream, own in rows.items()}
        return {stream: len(own) for stream, own in rows.items()}

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        self._rows[stream].append(row)

    def flush(self) -> None:
        make_folder(self._folder)
        for stream, rows in self._rows.items():
            if rows:
                write_text(self._folder / f"{stream}.csv", csv_text(stream, rows))

    def close(self, path: Path) -> None:
        self.flush()


def table_of(stream: str, rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and lines of a table of these rows: the step, and a column for each tag."""
    lines = [{"step": row["step"], **scalars_of(stream, row)} for row in rows]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return columns, [[line.get(name) for name in columns] for line in lines]


def csv_text(stream: str, rows: list[dict[str, Any]]) -> str:
    """The same table as text."""
    columns, lines = table_of(stream, rows)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *lines])
    return text.getvalue()
