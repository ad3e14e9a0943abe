"""The page of a search: its history, what mattered, which values go together, all trials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import UserError
from p3s.machine import require_optuna
from p3s.report.formatting import compact, count_text, score_text, share_text
from p3s.report.page import shared, template
from p3s.report.run_page import PAGE
from p3s.runs.files import write_text
from p3s.tuning.results import (
    STATES,
    importances,
    is_complete,
    param_text,
    rank,
    value_of_trial,
    value_text,
)
from p3s.tuning.storage import JOURNAL, open_storage
from p3s.tuning.study import Tuning
from p3s.tuning.workers import best_of

FEW = 20
"""Finished trials below which the page warns that they are few."""


@dataclass(frozen=True)
class Axis:
    """A field that was searched: where its values lie between 0 and 1, and how they read."""

    name: str
    distribution: Any

    def place(self, param: Any) -> float:
        """Where a value lies."""
        choices = getattr(self.distribution, "choices", None)
        if choices is not None:
            return choices.index(param) / max(len(choices) - 1, 1)
        ends = self.distribution.low, self.distribution.high
        low, high, at = map(math.log, (*ends, param)) if self.distribution.log else (*ends, param)
        return (at - low) / (high - low) if high > low else 0.5

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places with their texts: all choices, or both ends."""
        choices = getattr(self.distribution, "choices", None)
        shown = choices or (self.distribution.low, self.distribution.high)
        return [(self.place(each), value_text(each)) for each in shown]


def write_search_page(folder: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a search whose journal is in its folder."""
    storage = open_storage(str(folder / JOURNAL))
    names = require_optuna().get_all_study_names(storage)
    if len(names) != 1:
        raise UserError(f"{folder / JOURNAL} holds {len(names)} studies, not one")
    study = require_optuna().load_study(study_name=names[0], storage=storage)
    return write_page(study, folder, out, title)


def write_page(study: Any, folder: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a study of Optuna, into its folder unless `out` is given."""
    out = folder / PAGE if out is None else out
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render_search(study, folder, title))
    return out


def leave_page(tuning: Tuning) -> str | None:
    """Write the page where a search ends; a line about it. Whatever goes wrong, trials are kept."""
    if not tuning.trials:
        return None
    try:
        return f"report: {write_page(tuning.study, tuning.folder)}"
    except Exception as error:
        return f"no report was written: {error}"


def render_search(study: Any, folder: Path, title: str | None = None) -> str:
    """The page of a study of Optuna."""
    trials = study.get_trials(deepcopy=False)
    if not trials:
        raise UserError(f"study {study.study_name!r} has no trial yet")
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    best, shares = best_of(trials), importances(study)
    axes = [_axis(name, trials) for name in names]
    states = [trial.state.name for trial in trials]
    finished = states.count("COMPLETE") + states.count("PRUNED")
    return template("search.html.j2").render(
        title=title or study.study_name,
        lead=_lead(states),
        tiles=_tiles(best, states, shares),
        cautions=_cautions(trials, finished),
        importances=shares,
        num_complete=states.count("COMPLETE"),
        has_values=bool(axes) and best is not None,
        best_command=f"p3s train --config {folder / 'best.toml'}" if best is not None else "",
        names=names,
        rows=[_row(trial, names, trial is best) for trial in sorted(trials, key=rank)],
        **shared("search.js", _data(trials, axes, best)),
    )


def _axis(name: str, trials: list[Any]) -> Axis:
    return Axis(name, next(t.distributions[name] for t in trials if name in t.params))


def _lead(states: list[str]) -> str:
    counts = {word: states.count(state) for state, word in STATES.items()}
    return " · ".join(
        [count_text(len(states), "trial"), *(f"{n} {word}" for word, n in counts.items() if n)]
    )


def _tiles(best: Any, states: list[str], shares: dict[str, float]) -> list[dict[str, str]]:
    if best is None:
        return []
    tiles = [
        {"what": "best score", "value": score_text(best.value), "detail": f"trial {best.number}"},
        {"what": "finished trials", "value": str(states.count("COMPLETE") + states.count("PRUNED")),
         "detail": f"{states.count('PRUNED')} of them pruned"},
    ]  # fmt: skip
    if shares:
        name, share = next(iter(shares.items()))
        detail = f"{share_text(share)} of the importance"
        tiles.append({"what": "what mattered most", "value": name, "detail": detail})
    return tiles


def _cautions(trials: list[Any], finished: int) -> list[str]:
    found = ["The best of many trials was lucky too: train its configuration with other seeds."]
    if finished < FEW:
        found.append(f"{count_text(finished, 'finished trial')} are few for a search.")
    failed = [trial.number for trial in trials if trial.state.name == "FAIL"]
    if failed:
        found.append(f"{count_text(len(failed), 'trial')} failed: the table says why.")
    return found


def _row(trial: Any, names: list[str], best: bool) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": STATES.get(trial.state.name, trial.state.name.lower()),
        "error": str(trial.user_attrs.get("error", "")),
        "value": value_of_trial(trial),
        "best": best,
        "texts": [param_text(trial, name) for name in names],
    }


def _data(trials: list[Any], axes: list[Axis], best: Any) -> dict[str, Any]:
    """The JSON of both charts."""
    values = {
        state: np.array([_number(trial, state) for trial in trials])
        for state in ("COMPLETE", "PRUNED")
    }
    highest = np.array(list(accumulate(values["COMPLETE"], np.fmax)))
    complete = [trial for trial in trials if is_complete(trial)]
    scores = [_number(trial) for trial in complete]
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    score = {"name": "score", "ticks": [(0, score_text(low)), (1, score_text(high))]}
    lines = []
    for trial, own in zip(complete, scores, strict=True):
        height = (own - low) / (high - low) if high > low else 1.0
        worse = sum(other < own for other in scores)
        places = [
            axis.place(trial.params[axis.name]) if axis.name in trial.params else None
            for axis in axes
        ]
        texts = [param_text(trial, axis.name) for axis in axes]
        lines.append(
            {"name": f"trial {trial.number}", "at": [*places, height],
             "texts": [*texts, score_text(own)], "best": trial is best,
             "strength": worse / max(len(scores) - 1, 1)}
        )  # fmt: skip
    return {
        "numbers": [trial.number for trial in trials],
        "complete": compact(values["COMPLETE"]),
        "pruned": compact(values["PRUNED"]),
        "best": compact(highest),
        "axes": [*({"name": axis.name, "ticks": axis.ticks} for axis in axes), score],
        "lines": lines,
    }


def _number(trial: Any, state: str = "COMPLETE") -> float:
    """The score of a trial that is in this state, else NaN."""
    value = value_of_trial(trial)
    return math.nan if value is None or trial.state.name != state else value
