"""Trackio: the local store (TRACKIO_DIR), or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says.

The run's name is kept in the run folder, so a resumed run is the same run there. What it has is
asked of the local store. Another machine's cannot be asked: there, rows since the last checkpoint
may come twice after a kill.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

from p3s.runs.loggers.as_csv import table_of
from p3s.runs.loggers.base import ROWS, TABLES, Logger, Rows, known_as, needed, remember, run_name
from p3s.runs.loggers.scalars import scalars_of

PROJECT = "p3s"


class Trackio(Logger):
    """One run of the project p3s, or of TRACKIO_PROJECT."""

    name = "trackio"

    def __init__(self) -> None:
        self._trackio = needed("trackio", "trackio")
        self._run: Any = None

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        known_name = known_as(path, self.name)
        name = known_name or run_name(path, config)
        # Folders of the same name elsewhere are other runs: only a known one is resumed.
        resume = "never" if known_name is None else "allow"
        with quiet():
            self._run = self._trackio.init(
                project, name, config=config, resume=resume, embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
        remember(path, self.name, self._run.name)
        self._rows = {stream: list(own) for stream, own in rows.items()}
        if known_name is None:
            return {}
        if "TRACKIO_SPACE_ID" in os.environ or "TRACKIO_SERVER_URL" in os.environ:
            return {stream: len(own) for stream, own in rows.items()}
        logs = self._trackio.SQLiteStorage.get_logs(project, self._run.name, run_id=self._run.id)
        return {
            stream: int(max((log.get(f"{ROWS}/{stream}", 0) for log in logs), default=0))
            for stream in rows
        }

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        if number > len(self._rows[stream]):
            self._rows[stream].append(row)
        values = {f"{ROWS}/{stream}": number, **scalars_of(stream, row)}
        self._run.log(values, step=row["step"])

    def close(self, path: Path) -> None:
        if self._run is None:
            return
        with quiet():
            for stream in TABLES:
                if self._rows[stream]:
                    columns, lines = table_of(stream, self._rows[stream])
                    table = self._trackio.Table(columns=columns, data=lines)
                    self._run.log({f"table/{stream}": table}, step=self._rows[stream][-1]["step"])
            page = path / "report.html"
            if page.exists():
                artifact = self._trackio.Artifact(f"report-{self._run.id}", type="report")
                artifact.add_file(str(page))
                self._run.log_artifact(artifact)
            self._run.finish()


@contextlib.contextmanager
def quiet() -> Any:
    """Keep what trackio prints out of a run's own output."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
