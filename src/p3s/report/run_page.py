"""The page of a single run, written into its folder when training ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import UserError
from p3s.report.curves import learner_lines
from p3s.report.formatting import compact, count_text, duration_text, score_text
from p3s.report.guidance import chief_data
from p3s.report.page import render
from p3s.report.results import Results, RunResult, read_run
from p3s.runs.files import write_text

PAGE = "report.html"


def write_run_page(path: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a run, into its own folder unless `out` is given."""
    run, notes = read_run(path)
    if not run.evaluations:
        raise UserError(f"{path} has no evaluation yet")
    out = path / PAGE if out is None else out
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render_run(run, notes, title))
    return out


def leave_run_page(path: Path) -> str:
    """Write the page of a finished run and return one line about it.

    No error may escape: the run itself is complete, whatever happens to its page.
    """
    try:
        return f"report: {write_run_page(path)}"
    except Exception as error:
        return f"no report was written: {error}"


def render_run(run: RunResult, notes: list[str], title: str | None = None) -> str:
    """The page of a single run: its learners, and how the chief guided them."""
    last, unfinished = run.evaluations[-1], list[str]()
    if not run.complete:
        steps = f"{last['step']:,} of {run.config['steps']:,} steps"
        unfinished = [f"the run is not complete: evaluated at {steps}"]
    return render(
        Results(title or run.name, [run]),
        {"panels": [{"name": run.env, "series": _lines(run)}], "chief": chief_data([run])},
        summary=None,
        lead=f"{last['step']:,} environment steps · {last['updates']:,} updates over all learners",
        tiles=_tiles(run),
        cautions=[*notes, *unfinished],
        curves_hint="Mean return of each learner over noiseless episodes. The champion is "
        f"{_champion(last)}, evaluated on fresh episodes.",
    )


def _lines(run: RunResult) -> list[dict[str, Any]]:
    """The JSON of the curves: every learner, the champion and the chief's pick."""
    lines = learner_lines(run)
    x = {name: compact(lines[name], 9) for name in ("steps", "updates", "seconds")}
    found: list[dict[str, Any]] = [
        {"name": f"learner {index}", "color": index, "x": x, "width": 1.4,
         "y": {"score": {"mean": compact(line)}}}
        for index, line in enumerate(lines["learners"])
    ]  # fmt: skip
    for name, label in (("champion", "champion"), ("chief", "chief's pick")):
        if not np.isnan(lines[name]).all():
            found.append(
                {"name": label, "color": len(found), "dash": "none", "x": x, "width": 2.8,
                 "y": {"score": {"mean": compact(lines[name])}}}
            )  # fmt: skip
    return found


def _champion(row: dict[str, Any]) -> str:
    """Who the champion is: in older rows, without `chief_return`, the chief's pick."""
    older = row.get("chief_return") is None
    return "the learner that the chief would pick" if older else "the best learner of an evaluation"


def _tiles(run: RunResult) -> list[dict[str, str]]:
    last, highest = run.evaluations[-1], max(row["score"] for row in run.evaluations)
    tiles = [
        {"what": "score, best learner", "value": score_text(last["score"]),
         "detail": f"highest so far {score_text(highest)}"},
        {"what": "champion, fresh episodes", "value": score_text(last.get("champion_return")),
         "detail": "none yet" if last.get("champion_return") is None else _champion(last)},
        {"what": "population mean", "value": score_text(last["mean"]),
         "detail": count_text(run.num_learners, "learner")},
        {"what": "time", "value": duration_text(last["seconds"]),
         "detail": f"{last['step'] / max(last['seconds'], 1e-9):,.0f} steps per second"},
    ]  # fmt: skip
    if last.get("chief_return") is not None:
        chief = {"what": "chief's pick, fresh episodes", "value": score_text(last["chief_return"]),
                 "detail": "picked by training returns alone"}  # fmt: skip
        tiles.insert(2, chief)
    return tiles
