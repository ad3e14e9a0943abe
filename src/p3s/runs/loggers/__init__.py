"""Loggers: the rows of a run in the tools that people look at, one file each.

    --loggers tensorboard wandb mlflow trackio csv

Each is an extra, imported when asked for. One run is one run there, whatever happened to its
process: a logger says how many rows of each stream it has, and gets the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from p3s.errors import unknown
from p3s.runs.loggers.base import Logger

LOGGERS = {
    "tensorboard": "tensorboard_logger:TensorBoard",
    "wandb": "wandb_logger:WeightsAndBiases",
    "mlflow": "mlflow_logger:MLflow",
    "trackio": "trackio_logger:Trackio",
    "csv": "csv_logger:CSV",
}


def make_loggers(names: Iterable[str]) -> list[Logger]:
    """The loggers of these names; UserError if one is not known or not installed."""
    found: list[Logger] = []
    for name in dict.fromkeys(names):
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        module, _, made = LOGGERS[name].partition(":")
        found.append(getattr(importlib.import_module(f"p3s.runs.loggers.{module}"), made)())
    return found
