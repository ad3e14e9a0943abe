"""MLflow: where MLFLOW_TRACKING_URI says, or mlflow.db in the run folder's own parent.

The run's id is kept in the run folder, so a resumed run is the same run there; what it has is asked
of the store.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from p3s.runs.loggers import base
from p3s.runs.loggers.base import ROWS, Logger, Rows
from p3s.runs.loggers.scalars import scalars_of
from p3s.runs.settings import settings

EXPERIMENT = "p3s"


class MLflow(Logger):
    """One run of the experiment p3s, or of MLFLOW_EXPERIMENT_NAME."""

    name = "mlflow"

    def __init__(self) -> None:
        self._mlflow = base.package("mlflow", "mlflow")
        self._id: str | None = None
        self._torn: dict[str, int] = {}
        """The row of each stream that a kill may have left in parts: not every store is atomic."""

    def open(self, path: Path, config: dict[str, Any], rows: Rows, step: int) -> dict[str, int]:
        entities = self._mlflow.entities
        self._metric, self._parameter = entities.Metric, entities.Param
        uri = (
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{path.resolve().parent}/mlflow.db"
        )
        self._client = self._mlflow.MlflowClient(tracking_uri=uri)
        self._id = base.known_as(path, self.name)
        if self._id is None:
            self._id = self._create(path, config)
            return {}
        self._client.set_terminated(self._id, "RUNNING")
        known: dict[str, int] = {}
        for stream in rows:
            history = self._client.get_metric_history(self._id, f"{ROWS}/{stream}")
            known[stream] = int(max((metric.value for metric in history), default=0))
        self._torn = {stream: count + 1 for stream, count in known.items()}
        return known

    def _create(self, path: Path, config: dict[str, Any]) -> str:
        client, name = self._client, os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = client.get_experiment_by_name(name)
        number = client.create_experiment(name) if experiment is None else experiment.experiment_id
        run = client.create_run(number, run_name=base.run_name(path, config)).info.run_id
        base.remember(path, self.name, run)
        known = {"seed": config["seed"], **settings(config)}
        parameters = [self._parameter(key, str(value)[:500]) for key, value in known.items()]
        client.log_batch(run, params=parameters)
        return run

    def write(self, stream: str, number: int, row: dict[str, Any]) -> None:
        now = int(time.time() * 1000)
        values = {**scalars_of(stream, row), f"{ROWS}/{stream}": float(number)}
        if self._torn.get(stream) == number:
            values = {tag: value for tag, value in values.items() if not self._has(tag, row)}
        metrics = [self._metric(tag, value, now, row["step"]) for tag, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _has(self, tag: str, row: dict[str, Any]) -> bool:
        """Whether the store has this number of a row."""
        history = self._client.get_metric_history(self._id, tag)
        return any(metric.step == row["step"] for metric in history)

    def close(self, path: Path) -> None:
        if self._id is None:
            return
        for stream, table in self.tables():
            self._client.log_text(self._id, base.csv_text(table), f"{stream}.csv")
        if (path / "report.html").exists():
            self._client.log_artifact(self._id, str(path / "report.html"))
        self._client.set_terminated(self._id)
