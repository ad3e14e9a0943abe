"""The report as one HTML file that needs no network: HTML tables and curves as embedded JSON.

The template escapes every string; `template/charts.js` draws the curves from the JSON.
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
    preset_line,
    provenance_rows,
    published_line,
    reference_cautions,
)
from p3s.report.curves import Curve, method_curve
from p3s.report.formatting import (
    compact,
    count_text,
    duration_text,
    embed_json,
    interval_text,
    p_text,
    ratio_text,
    score_text,
    share_text,
)
from p3s.report.guidance import chief_data
from p3s.report.performance import Cell
from p3s.report.references import Reference
from p3s.report.results import Results
from p3s.report.statistics import DECIDED
from p3s.report.summary import Summary, summarize

TEMPLATES = Path(__file__).parent / "template"
NUM_COLORS = 8


@dataclass(frozen=True)
class Report:
    """Runs, and all numbers and curves computed from them."""

    results: Results
    summary: Summary
    curves: list[Curve]


def build_report(results: Results, seed: int = 0) -> Report:
    """Compute all numbers and curves; the bootstrap depends on the seed alone."""
    rng = np.random.default_rng(seed)
    summary = summarize(results, rng)
    curves = [
        method_curve(runs, rng)
        for env in results.envs
        for method in results.methods
        if (runs := results.select(method, env))
    ]
    return Report(results, summary, curves)


# ---------------------------------------------------------------------- data for the charts


def curve_data(curve: Curve, color: int) -> dict[str, Any]:
    """The JSON of one method's curve."""
    return {
        "name": curve.method,
        "color": color,
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


def report_data(report: Report, colors: dict[str, int]) -> dict[str, Any]:
    """The JSON of all charts of a comparison."""
    results, summary = report.results, report.summary
    panels = []
    for env in results.envs:
        own = [curve for curve in report.curves if curve.env == env]
        cells = [cell for (_, where), cell in summary.cells.items() if where == env]
        marks = [
            {"method": cell.method, "name": f"{cell.method} in the paper: {score_text(cell.paper)}",
             "color": colors[cell.method], "value": cell.paper}
            for cell in cells if cell.paper is not None
        ]  # fmt: skip
        panels.append(
            {
                "name": env,
                "series": [curve_data(curve, colors[curve.method]) for curve in own],
                "paper": marks,
                "references": _reference_marks(results.references.get(env)),
            }
        )
    data: dict[str, Any] = {"panels": panels, "chief": chief_data(results.runs)}
    if summary.aggregates:
        data["profile"] = {
            "x": compact(summary.overall.thresholds),
            "series": [
                {"name": item.method, "color": colors[item.method], "y": compact(item.profile)}
                for item in summary.aggregates
            ],
        }
        data["iqm"] = [
            {"name": item.method, "color": colors[item.method], "value": item.iqm.value,
             **dict(zip(("low", "high"), compact(np.array(item.iqm.interval)), strict=True))}
            for item in summary.aggregates
        ]  # fmt: skip
    return data


def _reference_marks(reference: Reference | None) -> list[dict[str, Any]]:
    means = {} if reference is None else reference.means
    return [
        {"policy": policy, "name": f"{policy} policy: {score_text(mean)}", "value": mean}
        for policy, mean in means.items()
    ]


# ---------------------------------------------------------------------- pages


@cache
def template(name: str) -> jinja2.Template:
    """A template of this package, which escapes every string."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": score_text, "ratio": ratio_text, "ratios": interval_text, "p": p_text,
        "share": share_text,
    }  # fmt: skip
    return environment.get_template(name)


def shared(script: str, data: dict[str, Any]) -> dict[str, str]:
    """What every page has: its version, style, charts, a script of its own, and their data."""
    scripts = ("charts.js", script)
    return {
        "version": metadata.version("p3s"),
        "style": (TEMPLATES / "page.css").read_text(encoding="utf-8"),
        "script": "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts),
        "data": embed_json(data),
    }


def render(results: Results, data: dict[str, Any], **context: Any) -> str:
    """A page from the template: what all pages share, and the context of this one."""
    methods, differing = differing_settings(results)
    runs = [
        {"path": run.path, "method": run.method, "env": run.env, "seed": run.seed,
         "steps": f"{run.last_step:,}", "score": score_text(run.evaluations[-1]["score"]),
         "time": duration_text(run.evaluations[-1]["seconds"])}
        for run in results.runs
    ]  # fmt: skip
    return template("page.html.j2").render(
        title=results.title,
        **shared("page.js", data),
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
    colors = {method: index for index, method in enumerate(results.methods)}
    shown = {method: index % NUM_COLORS for method, index in colors.items()}
    cells = summary.cells.values()
    has_references = any(scale.reference is not None for scale in summary.scales.values())
    return render(
        results,
        report_data(report, colors),
        summary=summary,
        lead=_lead(results),
        tiles=_tiles(summary),
        cautions=[
            *results.notes,
            *reference_cautions(summary),
            *summary.notes,
            *cautions(results),
        ],
        curves_hint="Lines are means over seeds, bands are 95 % bootstrap intervals, and dotted "
        "lines are scores published in the paper."
        + (" Gray lines are policies that learn nothing." if has_references else ""),
        environments=[_environment(env, summary, shown) for env in summary.scales],
        colors=shown,
        has_paper=any(cell.paper is not None for cell in cells),
        has_references=has_references,
        published=published_line(results),
        has_best_of=any(cell.best_of for cell in cells),
        has_chief_pick=any(cell.measures["chief"].values.size for cell in cells),
        has_tails=any(item.tail is not None for item in summary.aggregates),
        decided=DECIDED,
        matrix=_matrix(summary),
    )


def _lead(results: Results) -> str:
    parts = [
        count_text(len(results.runs), "run"),
        count_text(len(results.methods), "method"),
        count_text(len(results.envs), "environment"),
        count_text(len({run.seed for run in results.runs}), "seed"),
    ]
    budgets = [f"{steps:,}" for steps in sorted({run.config["steps"] for run in results.runs})]
    steps = " and ".join(budgets) if len(budgets) < 3 else f"{budgets[0]} to {budgets[-1]}"
    return " · ".join([*parts, f"{steps} steps", preset_line(results)])


def _tiles(summary: Summary) -> list[dict[str, str]]:
    """The best method of each environment, for the tiles at the top."""
    tiles = []
    for env in summary.scales:
        here = [cell for cell in summary.cells.values() if cell.env == env]
        best = max(here, key=lambda cell: cell.score.mean)
        low, high = best.score.interval
        seeds = count_text(len(best.seeds), "seed")
        detail = best.method if summary.best(env) is None else f"best: {best.method}"
        if (policy := summary.unbeaten(env)) is not None:
            detail = f"none above the {policy} policy"
        more = f"{score_text(low)} to {score_text(high)} (95 %)" if math.isfinite(low) else seeds
        tiles.append(
            {
                "what": env,
                "value": score_text(best.score.mean),
                "detail": detail,
                "more": more,
                "reference": _earned(summary.scales[env].reference),
            }
        )
    return tiles


def _earned(reference: Reference | None) -> str:
    """What policies that learn nothing earn, in a few words."""
    means = {} if reference is None else reference.means
    return ", ".join(f"{policy} {score_text(mean)}" for policy, mean in means.items())


def _environment(env: str, summary: Summary, colors: dict[str, int]) -> dict[str, Any]:
    cells = [cell for cell in summary.cells.values() if cell.env == env]
    rows = [
        {
            "cell": cell,
            "color": colors[cell.method],
            "best": summary.best(env) == cell.method,
            "of_paper": ""
            if cell.paper is None or cell.paper <= 0
            else f"{cell.score.mean / cell.paper:.0%}",
            **_reached(cell),
        }
        for cell in cells
    ]
    reference = summary.scales[env].reference
    references = [
        {"policy": policy, "mean": np.mean(returns), "low": min(returns), "high": max(returns),
         "episodes": len(returns)}
        for policy, returns in (reference.returns if reference is not None else {}).items()
    ]  # fmt: skip
    return {"name": env, "scale": summary.scales[env], "rows": rows, "references": references}


def _reached(cell: Cell) -> dict[str, str]:
    """Median steps to the threshold over seeds, and how many seeds reached it."""
    count = sum(math.isfinite(steps) for steps in cell.reached)
    median = cell.median_reached
    text = f"{median:,.0f}" if math.isfinite(median) else "–"
    return {"reached": text, "reached_by": f"{count} of {len(cell.reached)} seeds"}


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
