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

from p3s.runs.loggers import base
from p3s.runs.loggers.base import ROWS, Logger, Rows
from p3s.runs.loggers.scalars import scalars_of

PROJECT = "p3s"


class Trackio(Logger):
    """One run of the project p3s, or of TRACKIO_PROJECT."""

    name = "trackio"

    def __init__(self) -> None:
        self._trackio = base.package("trackio", "trackio")
        self._run: Any = None

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        known_name = base.known_as(path, self.name)
        name = known_name or base.run_name(path, config)
        # Folders of the same name elsewhere are other runs: only a known one is resumed.
        resume = "never" if known_name is None else "allow"
        with quiet():
            self._run = self._trackio.init(
                project, name, config=config, resume=resume, embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
        base.remember(path, self.name, self._run.name)
        if known_name is None:
            return {}
        if "TRACKIO_SPACE_ID" in os.environ or "TRACKIO_SERVER_URL" in os.environ:
            return base.all_there(rows)
        logs = self._trackio.SQLiteStorage.get_logs(project, self._run.name, run_id=self._run.id)
        return {
            stream: int(max((log.get(f"{ROWS}/{stream}", 0) for log in logs), default=0))
            for stream in rows
        }

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        values = {f"{ROWS}/{stream}": number, **scalars_of(stream, row)}
        self._run.log(values, step=row["step"])

    def close(self, path: Path) -> None:
        if self._run is None:
            return
        with quiet():
            for stream, (columns, lines) in self.tables():
                table = self._trackio.Table(columns=columns, data=lines)
                self._run.log({f"table/{stream}": table}, step=self.rows[stream][-1]["step"])
            base.log_page(path, self._trackio, self._run)
            self._run.finish()


@contextlib.contextmanager
def quiet() -> Any:
    """Keep what trackio prints out of a run's own output."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
