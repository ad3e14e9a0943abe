"""CSV: a table for each stream, written anew from the records at every checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from p3s.runs.files import make_folder, write_text
from p3s.runs.loggers.base import Logger, Rows, all_there, csv_text, table_of


class CSV(Logger):
    """csv/metrics.csv, csv/evaluations.csv, ... in the run folder."""

    name = "csv"

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        self._folder = path / "csv"
        return all_there(rows)

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        """Rows are written together."""

    def flush(self) -> None:
        make_folder(self._folder)
        for stream, rows in self.rows.items():
            if rows:
                write_text(self._folder / f"{stream}.csv", csv_text(table_of(stream, rows)))

    def close(self, path: Path) -> None:
        self.flush()
