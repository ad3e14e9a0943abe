"""TensorBoard, by tensorboardX. What it has beyond the checkpoint is purged on resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from p3s.runs.loggers.base import Logger, Rows, all_there, package
from p3s.runs.loggers.scalars import scalars_of


class TensorBoard(Logger):
    """Event files in tensorboard/ of the run folder."""

    name = "tensorboard"

    def __init__(self) -> None:
        self._make, self._writer = package("tensorboardX", "tb", self.name).SummaryWriter, None

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        purge = step + 1 if step else None
        self._writer = self._make(str(path / "tensorboard"), purge_step=purge)
        return all_there(rows)

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        assert self._writer is not None
        for tag, value in scalars_of(stream, row).items():
            self._writer.add_scalar(tag, value, row["step"])

    def close(self, path: Path) -> None:
        if self._writer is not None:
            self._writer.close()
