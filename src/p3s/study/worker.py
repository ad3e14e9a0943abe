"""Run one cell of a study in its own process: `python -m p3s.study.worker`, its order on stdin.

continue the cell's run if it has started, else start it
run complete                                       exit code 0
told to stop, or the scheduler is gone             checkpoint, exit code STOPPED
an error                                           failures/<id>.json, exit code FAILED
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from p3s.config.run import Config
from p3s.envs.mujoco_setup import warn_once
from p3s.errors import UserError
from p3s.learning import devices
from p3s.plugins.loading import import_module
from p3s.report.failures import Failure, write_failure
from p3s.report.run_page import leave_run_page
from p3s.runs import opening
from p3s.runs.locks import is_locked
from p3s.train import Training

FAILED = 1
STOPPED = 128 + signal.SIGTERM
LEAVING = 60.0
"""Seconds that a process may take to leave a run, once who started it is gone."""


class StopRequest:
    """True once a signal has arrived or the scheduler's process is gone."""

    def __init__(self, scheduler: int) -> None:
        self._scheduler = scheduler
        self._signaled = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: Any) -> None:
        self._signaled = True

    def __bool__(self) -> bool:
        return self._signaled or os.getppid() != self._scheduler


def open_run(path: Path, config: Config) -> Training:
    """The cell's training, resumed from its last checkpoint or newly started."""
    _wait_for_leaver(path / ".lock")
    if not (path / "config.json").exists():
        # Never started, or killed before there was anything worth keeping.
        shutil.rmtree(path, ignore_errors=True)
        return opening.begin(config, path)
    longer = config.options.steps > opening.load_config(path).options.steps
    training, notes = opening.reopen(path, config.options.steps if longer else None)
    for note in notes:
        print(note)
    return training


def _wait_for_leaver(lock: Path) -> None:
    """Where an actor was lost on a cluster, its cell may still be writing a checkpoint."""
    until = time.monotonic() + LEAVING
    while is_locked(lock) and time.monotonic() < until:
        time.sleep(0.1)


def run_cell(order: dict[str, Any]) -> int:
    """Run a cell until it is complete or told to stop, and return the exit code."""
    stop = StopRequest(order["scheduler"])
    training: Training | None = None
    try:
        devices.prepare(order["config"].get("devices"))
        for module in order["config"]["modules"]:
            import_module(module)
        config = Config.from_json(order["config"])
        training = open_run(Path(order["run"]), config)
        print(f"from step {training.total_steps:,} to {config.options.steps:,}", flush=True)
        training.run(config.options.steps, lambda training: not stop)
        if training.total_steps < config.options.steps:
            training.checkpoint()
            print(f"stopped at step {training.total_steps:,}")
            return STOPPED
    except Exception as error:
        step = training.total_steps if training is not None else None
        what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        traceback.print_exc()
        failure = Failure(what, traceback.format_exc(), step)
        write_failure(Path(order["failure"]), failure)
        return FAILED
    finally:
        if training is not None:
            training.close()
    print(leave_run_page(Path(order["run"])))
    if order["discard_checkpoints"]:
        discard_checkpoints(Path(order["run"]))
    return 0


def discard_checkpoints(run: Path) -> None:
    """Remove a finished run's checkpoints."""
    # Rename first: a run with half a checkpoint would count as unfinished.
    shutil.rmtree((run / "checkpoints").rename(run / ".discarded"))


if __name__ == "__main__":
    warn_once(sys.stdout)
    sys.exit(run_cell(json.load(sys.stdin)))
