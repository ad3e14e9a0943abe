"""What a study has found: a table of its trials, what mattered, and the best configuration."""

from __future__ import annotations

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
    for trial in sorted(tuning.trials, key=_rank):
        params = [
            _text(space.value(trial.params[name])) if name in trial.params else "-"
            for name, space in spaces.items()
        ]
        state = STATES.get(trial.state.name, trial.state.name.lower())
        table.add_row(str(trial.number), state, score_text(_value(trial)), *params)
    return table


def _rank(trial: Any) -> tuple[bool, float, int]:
    value = _value(trial)
    complete = trial.state.name == "COMPLETE"
    return not complete, 0.0 if value is None else -value, trial.number


def _value(trial: Any) -> float | None:
    return trial.value if trial.state.is_finished() else None


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def importances(tuning: Tuning) -> str | None:
    """What the score depended on, in one line; None with too few trials."""
    complete = [trial for trial in tuning.trials if trial.state.name == "COMPLETE"]
    if len(complete) < LEAST_FOR_IMPORTANCE or len({trial.value for trial in complete}) < 2:
        return None
    importance = require_optuna().importance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importance.get_param_importances(
            tuning.study, evaluator=importance.PedAnovaImportanceEvaluator()
        )
    shares = ", ".join(f"{name} {share_text(share)}" for name, share in found.items())
    return f"importances (PED-ANOVA, {len(complete)} complete trials): {shares}"


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
