"""The report as one HTML file that needs no network: tables as HTML, curves as embedded JSON.

The template escapes every string; `template/charts.js` draws the curves from the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from p3s.report.context import (
    cautions,
    common_settings,
    differing_settings,
    duration,
    provenance_rows,
)
from p3s.report.curves import Curve, learner_lines, method_curve
from p3s.report.formatting import compact, embed_json, interval_text, ratio_text, score_text
from p3s.report.guidance import chief_data
from p3s.report.results import Results, RunResult
from p3s.report.summary import Cell, Summary, summarise

TEMPLATES = Path(__file__).parent / "template"
NUM_COLOURS = 8


@dataclass(frozen=True)
class Report:
    """Runs with everything computed from them."""

    results: Results
    summary: Summary
    curves: list[Curve]


def build_report(results: Results, seed: int = 0) -> Report:
    """All numbers and curves; the bootstrap draws follow from the seed alone."""
    rng = np.random.default_rng(seed)
    summary = summarise(results, rng)
    curves = [
        method_curve(runs, rng)
        for env in results.envs
        for method in results.methods
        if (runs := results.select(method, env))
    ]
    return Report(results, summary, curves)


# ---------------------------------------------------------------------- data for the charts


def curve_data(curve: Curve, colour: int) -> dict[str, Any]:
    """One method's curve for the charts."""
    return {
        "name": curve.method,
        "colour": colour,
        "counts": curve.counts.tolist(),
        "x": {
            "steps": compact(curve.steps, 9),
            "updates": compact(curve.updates, 9),
            "seconds": compact(curve.seconds),
        },
        "y": {
            name: {
                "mean": compact(band.mean),
                "low": compact(band.low),
                "high": compact(band.high),
                "lines": [compact(line, 4) for line in band.lines],
            }
            for name, band in curve.bands.items()
            if not np.isnan(band.mean).all()
        },
    }


def report_data(report: Report, colours: dict[str, int]) -> dict[str, Any]:
    """All that the charts of a comparison show."""
    results, summary = report.results, report.summary
    panels = []
    for env in results.envs:
        own = [curve for curve in report.curves if curve.env == env]
        cells = [cell for (_, where), cell in summary.cells.items() if where == env]
        marks = [
            {"method": cell.method, "name": f"{cell.method} in the paper: {score_text(cell.paper)}",
             "colour": colours[cell.method], "value": cell.paper}
            for cell in cells if cell.paper is not None
        ]  # fmt: skip
        panels.append(
            {
                "name": env,
                "series": [curve_data(curve, colours[curve.method]) for curve in own],
                "paper": marks,
            }
        )
    data: dict[str, Any] = {"panels": panels, "chief": chief_data(results.runs)}
    if summary.aggregates:
        data["profile"] = {
            "x": compact(summary.thresholds),
            "series": [
                {"name": item.method, "colour": colours[item.method], "y": compact(item.profile)}
                for item in summary.aggregates
            ],
        }
        data["iqm"] = [
            {"name": item.method, "colour": colours[item.method], "value": item.iqm,
             **dict(zip(("low", "high"), compact(np.array(item.iqm_interval)), strict=True))}
            for item in summary.aggregates
        ]  # fmt: skip
    return data


# ---------------------------------------------------------------------- pages


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"score": score_text, "ratio": ratio_text, "ratios": interval_text}
    return environment.get_template("page.html.j2")


def _render(results: Results, data: dict[str, Any], **context: Any) -> str:
    methods, differing = differing_settings(results)
    runs = [
        {"path": run.path, "method": run.method, "env": run.env, "seed": run.seed,
         "steps": f"{run.last_step:,}", "score": score_text(run.evaluations[-1]["score"]),
         "time": duration(run.evaluations[-1]["seconds"])}
        for run in results.runs
    ]  # fmt: skip
    return _template().render(
        title=results.title,
        version=metadata.version("p3s"),
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script="\n".join(
            (TEMPLATES / name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")
        ),
        data=embed_json(data),
        panels=[panel["name"] for panel in data["panels"]],
        has_chief=bool(data["chief"]),
        failures=results.failures,
        methods=methods,
        differing=differing,
        common=common_settings(results),
        provenance=provenance_rows(results),
        runs=runs,
        **context,
    )


def render_report(report: Report) -> str:
    """The page that compares methods."""
    results, summary = report.results, report.summary
    colours = {method: index for index, method in enumerate(results.methods)}
    shown = {method: index % NUM_COLOURS for method, index in colours.items()}
    cells = summary.cells.values()
    return _render(
        results,
        report_data(report, colours),
        summary=summary,
        lead=_lead(results),
        tiles=_tiles(summary),
        cautions=[*results.notes, *summary.notes, *cautions(results)],
        curves_hint="Mean over seeds; bands are 95 % bootstrap intervals, dotted lines the paper's "
        "published scores where there are any.",
        environments=[_environment(env, summary, shown) for env in summary.scales],
        colours=shown,
        has_paper=any(cell.paper is not None for cell in cells),
        has_best_of=any(cell.best_of for cell in cells),
        matrix=_matrix(summary),
    )


def _lead(results: Results) -> str:
    def count(number: int, word: str) -> str:
        return f"{number:,} {word}" + ("" if number == 1 else "s")

    parts = [
        count(len(results.runs), "run"),
        count(len(results.methods), "method"),
        count(len(results.envs), "environment"),
        count(len({run.seed for run in results.runs}), "seed"),
    ]
    steps = sorted({run.config["steps"] for run in results.runs})
    return " · ".join([*parts, f"{' and '.join(f'{each:,}' for each in steps[:3])} steps"])


def _tiles(summary: Summary) -> list[dict[str, str]]:
    """The best method of each environment, in large type."""
    tiles = []
    for env in summary.scales:
        here = [cell for cell in summary.cells.values() if cell.env == env]
        best = max(here, key=lambda cell: cell.score.mean)
        low, high = best.score.interval
        seeds = f"{len(best.seeds)} seed{'' if len(best.seeds) == 1 else 's'}"
        known = f"{score_text(low)} to {score_text(high)} (95 %)" if math.isfinite(low) else seeds
        tiles.append(
            {
                "what": env,
                "value": score_text(best.score.mean),
                "detail": f"{'highest: ' if len(here) > 1 else ''}{best.method}",
                "more": known,
            }
        )
    return tiles


def _environment(env: str, summary: Summary, colours: dict[str, int]) -> dict[str, Any]:
    cells = [cell for cell in summary.cells.values() if cell.env == env]
    rows = [
        {
            "cell": cell,
            "colour": colours[cell.method],
            "best": summary.best(env) == cell.method,
            "of_paper": ""
            if cell.paper is None or cell.paper <= 0
            else f"{cell.score.mean / cell.paper:.0%}",
            **_reached(cell),
        }
        for cell in cells
    ]
    return {"name": env, "scale": summary.scales[env], "rows": rows}


def _reached(cell: Cell) -> dict[str, str]:
    """Median steps to the threshold over the seeds, and how many seeds came there."""
    arrived = sum(math.isfinite(steps) for steps in cell.reached)
    median = cell.median_reached
    text = f"{median:,.0f}" if math.isfinite(median) else "–"
    return {"reached": text, "reached_by": f"{arrived} of {len(cell.reached)} seeds"}


def _matrix(summary: Summary) -> list[dict[str, Any]]:
    """Probability of improvement of every method over every other."""
    pairs = {(item.ours, item.theirs): item for item in summary.improvements}
    methods = [item.method for item in summary.aggregates]
    if len(methods) < 2:
        return []
    return [
        {"method": ours, "entries": [pairs.get((ours, theirs)) for theirs in methods]}
        for ours in methods
    ]


def render_run(run: RunResult, notes: list[str], title: str | None = None) -> str:
    """The page of a single run: its learners, and the chief at work."""
    lines = learner_lines(run)
    x = {name: compact(lines[name], 9) for name in ("steps", "updates", "seconds")}
    learners = [
        {"name": f"learner {index}", "colour": index, "x": x, "width": 1.4,
         "y": {"score": {"mean": compact(line)}}}
        for index, line in enumerate(lines["learners"])
    ]  # fmt: skip
    if not np.isnan(lines["champion"]).all():
        champion = {"name": "champion", "colour": len(learners), "dash": "none", "x": x}
        champion["width"] = 2.8
        learners.append({**champion, "y": {"score": {"mean": compact(lines["champion"])}}})
    results = Results(title or run.name, [run])
    last, scores = run.evaluations[-1], [row["score"] for row in run.evaluations]
    tiles = [
        {"what": "score, best learner", "value": score_text(last["score"]),
         "detail": f"highest so far {score_text(max(scores))}"},
        {"what": "champion, fresh episodes", "value": score_text(last.get("champion_return")),
         "detail": "the learner that the chief would pick"},
        {"what": "population mean", "value": score_text(last["mean"]),
         "detail": f"{run.num_learners} learner{'' if run.num_learners == 1 else 's'}"},
        {"what": "time", "value": duration(last["seconds"]),
         "detail": f"{last['step'] / max(last['seconds'], 1e-9):,.0f} steps a second"},
    ]  # fmt: skip
    unfinished = (
        [] if run.complete else [f"not complete: {last['step']:,} of {run.config['steps']:,}"]
    )
    return _render(
        results,
        {"panels": [{"name": run.env, "series": learners}], "chief": chief_data([run])},
        summary=None,
        lead=f"{last['step']:,} environment steps · {last['updates']:,} updates of all learners",
        tiles=tiles,
        cautions=[*notes, *unfinished],
        curves_hint="Mean return of each learner's noiseless episodes; the champion is the learner "
        "that the chief would pick, on fresh episodes.",
    )
