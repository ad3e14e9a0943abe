"""The report's figures as PNG, SVG and PDF (needs matplotlib, an extra)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p3s.machine import require_matplotlib
from p3s.report.curves import Curve
from p3s.report.guidance import distances, lineage_strip
from p3s.report.page import Report
from p3s.report.results import Results, RunResult

COLORS = ("#0b62c4", "#b8420c", "#0b6b4a", "#b8479a", "#ab8800", "#3399cc", "#4b2a99", "#6f7780")
"""The page's colors in light mode; as on the page, the dash changes after every fourth color."""
STYLES = ("-", "--", ":", "-.")
REFERENCE: dict[str, dict[str, Any]] = {
    "idle": {"color": "0.35", "lw": 0.9, "ls": (0, (8, 3))},
    "random": {"color": "0.35", "lw": 0.9, "ls": (0, (2, 2))},
}
"""The lines of policies that learn nothing."""
FORMATS = ("png", "svg", "pdf")
RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "p3s",
    "pdf.fonttype": 42,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def draw_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure in every format and return the paths."""
    matplotlib = require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, tuple[tuple[float, float], Callable[[Any], None]]] = {
        "curves": (
            curves_size(report.results),
            lambda f: draw_curves(f, report.results, report.curves),
        ),
    }
    if report.summary.aggregates:
        pictures["profile"] = ((4.2, 3.0), lambda f: draw_profile(f, report))
        height = 0.9 + 0.32 * len(report.summary.aggregates)
        pictures["iqm"] = ((4.6, height), lambda f: draw_iqm(f, report))
    for env in report.results.envs:
        runs = [run for run in report.results.select(env=env) if len(distances(run)) > 0]
        if runs:
            name = "".join(c if c.isalnum() or c in ".-" else "-" for c in env)
            pictures[f"population-{name}"] = (
                (9.0, 3.4 + 0.22 * len(runs)),
                lambda f, runs=runs: draw_chief(f, runs),
            )
    paths = []
    with matplotlib.rc_context(RC):
        for name, (size, draw) in pictures.items():
            figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
            draw(figure)
            for kind in FORMATS:
                paths.append(folder / f"{name}.{kind}")
                stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                figure.savefig(paths[-1], dpi=150, metadata=stamp)
    return paths


def save_curves(results: Results, curves: list[Curve], out: Path) -> None:
    """Draw learning curves alone, in the format that the name of the file says."""
    matplotlib = require_matplotlib()
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(RC):
        figure = matplotlib.figure.Figure(figsize=curves_size(results), layout="constrained")
        draw_curves(figure, results, curves)
        figure.savefig(out, dpi=150)


def curves_size(results: Results) -> tuple[float, float]:
    """Inches for the panels of all environments."""
    return 3.4 * min(4, len(results.envs)) + 0.4, 2.6 * math.ceil(len(results.envs) / 4) + 0.5


def line_style(index: int) -> dict[str, Any]:
    """Color and dash of the n-th curve."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": STYLES[index // 4 % len(STYLES)],
    }


def draw_curves(figure: Any, results: Results, curves: list[Curve]) -> None:
    """Learning curves with intervals, one panel per environment."""
    envs, methods = results.envs, results.methods
    columns = min(4, len(envs))
    panels = figure.subplots(math.ceil(len(envs) / columns), columns, squeeze=False).ravel()
    for panel in panels[len(envs) :]:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for env, panel in zip(envs, panels, strict=False):
        for curve in curves:
            if curve.env != env:
                continue
            index, band = methods.index(curve.method), curve.bands["score"]
            marker = "o" if len(curve.steps) == 1 else None
            (line,) = panel.plot(curve.steps, band.mean, marker=marker, **line_style(index))
            panel.fill_between(
                curve.steps, band.low, band.high, color=line_style(index)["color"], alpha=0.17, lw=0
            )
            handles[curve.method] = line
            paper = results.select(curve.method, env)[0].paper
            if paper is not None:
                panel.axhline(paper, color=line_style(index)["color"], lw=0.8, ls=":")
        reference = results.references.get(env)
        for policy, mean in ({} if reference is None else reference.means).items():
            handles[f"{policy} policy"] = panel.axhline(mean, **REFERENCE[policy])
        panel.set_title(env, fontsize="medium")
        label_steps(panel)
    figure.supxlabel("environment steps of all learners", fontsize="medium")
    figure.supylabel("score", fontsize="medium")
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=min(5, len(handles)))


def label_steps(panel: Any) -> None:
    """A few ticks on the step axis, labeled as 200k or 1M."""
    ticker = require_matplotlib().ticker
    panel.xaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))


def draw_profile(figure: Any, report: Report) -> None:
    """Performance profiles of all methods."""
    panel = figure.subplots()
    for index, item in enumerate(report.summary.aggregates):
        panel.plot(
            report.summary.overall.thresholds, item.profile, label=item.method, **line_style(index)
        )
    panel.set(xlabel="normalized score", ylabel="fraction of runs above", ylim=(0, 1.02))
    panel.legend(fontsize="small")


def draw_iqm(figure: Any, report: Report) -> None:
    """Interquartile means of all methods with their intervals."""
    panel = figure.subplots()
    items = report.summary.aggregates
    for index, item in enumerate(items):
        color = line_style(index)["color"]
        panel.plot(item.iqm.interval, [index, index], color=color, lw=6, alpha=0.3)
        panel.plot(item.iqm.value, index, "o", color=color)
    panel.set_yticks(range(len(items)), [item.method for item in items])
    panel.set(ylim=(len(items) - 0.5, -0.5), xlabel="interquartile mean of normalized scores")


def draw_chief(figure: Any, runs: list[RunResult]) -> None:
    """β of every run, the distances of the first, and the best learner over time."""
    upper, lower = figure.subfigures(2, 1, height_ratios=(2.7, 0.7 + 0.22 * len(runs)))
    pull, far = upper.subplots(1, 2)
    strip = lower.subplots()
    mixed = len({run.method for run in runs}) > 1
    names = [f"{run.method}, seed {run.seed}" if mixed else f"seed {run.seed}" for run in runs]
    for index, run in enumerate(runs):
        numbers = distances(run)
        pull.plot(numbers["steps"], numbers["beta"], label=names[index], **line_style(index))
        if index == 0:
            for place, name in enumerate(("spread", "target", "change")):
                if np.isfinite(numbers[name]).any():
                    far.plot(numbers["steps"], numbers[name], label=name, lw=1, **line_style(place))
        parts = lineage_strip(run)
        strip.broken_barh(
            [(start, end - start) for start, end, _ in parts],
            (index - 0.4, 0.8),
            facecolors=[line_style(best)["color"] for _, _, best in parts],
        )
    pull.set(yscale="log", title="β")
    far.set(yscale="log", title=f"distances, {names[0]}")
    for panel in (pull, far, strip):
        label_steps(panel)
    for panel in (pull, far):
        panel.legend(fontsize="x-small")
    strip.set_yticks(range(len(runs)), names, fontsize="x-small")
    strip.set(
        title="best learner",
        xlabel="environment steps of all learners",
        ylim=(len(runs) - 0.5, -0.5),
    )
    strip.grid(False)
