"""What a study has found: a table of its trials, what mattered, and the best configuration."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from p3s.config.run_file import run_file_text
from p3s.machine import require_optuna
from p3s.report.formatting import score_text, share_text
from p3s.runs.files import write_text
from p3s.tuning.study import Tuning
from p3s.tuning.workers import best_of

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
LEAST_FOR_IMPORTANCE = 4
"""Complete trials below which importances are only noise."""


def trial_table(tuning: Tuning) -> Table:
    """All trials, the best first."""
    spaces = tuning.declared.spaces
    table = Table("trial", "state", "score", *spaces, box=None, pad_edge=False)
    for trial in sorted(tuning.trials, key=rank):
        params = [param_text(trial, name) for name in spaces]
        state = STATES.get(trial.state.name, trial.state.name.lower())
        table.add_row(str(trial.number), state, score_text(value_of_trial(trial)), *params)
    return table


def rank(trial: Any) -> tuple[bool, float, int]:
    """The order of a table of trials: complete ones first, the best of them first."""
    value = value_of_trial(trial)
    return trial.state.name != "COMPLETE", 0.0 if value is None else -value, trial.number


def value_of_trial(trial: Any) -> float | None:
    """The score of a trial that has ended, if it has one."""
    return trial.value if trial.state.is_finished() else None


def param_text(trial: Any, name: str) -> str:
    """What a trial tried for a field."""
    return value_text(trial.params[name]) if name in trial.params else "–"


def value_text(param: Any) -> str:
    """A value as it reads; choices are kept as JSON."""
    if isinstance(param, str):
        with contextlib.suppress(ValueError):
            param = json.loads(param)
    return f"{param:.4g}" if isinstance(param, float) else str(param)


def importances(study: Any) -> dict[str, float]:
    """The share of each field in how scores differ, the largest first; none with few trials."""
    complete = [trial for trial in study.get_trials(deepcopy=False) if is_complete(trial)]
    if len(complete) < LEAST_FOR_IMPORTANCE or len({trial.value for trial in complete}) < 2:
        return {}
    importance = require_optuna().importance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importance.get_param_importances(
            study, evaluator=importance.PedAnovaImportanceEvaluator()
        )


def importance_line(study: Any) -> str | None:
    """What the score depended on, in one line; None with too few trials."""
    found = importances(study)
    shares = ", ".join(f"{name} {share_text(share)}" for name, share in found.items())
    return f"importances (PED-ANOVA over complete trials): {shares}" if found else None


def is_complete(trial: Any) -> bool:
    """Whether a trial has ended by itself, not pruned and not failed."""
    return trial.state.name == "COMPLETE"


def leave_best(tuning: Tuning, log: tuple[str, ...]) -> Iterator[str]:
    """Write the best configuration; lines that say where it is and how to train it."""
    best = best_of(tuning.trials)
    if best is None:
        yield "no trial is complete: there is no best configuration"
        return
    path: Path = tuning.folder / "best.toml"
    write_text(path, run_file_text(tuning.declared.config(best.params), log))
    yield f"best: trial {best.number}, score {score_text(best.value)}"
    yield f"its configuration: {path}"
    yield f"to train it: p3s train --config {path}"
