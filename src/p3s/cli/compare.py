"""Runs side by side: a table at the same number of environment steps, and learning curves.

Every curve is one run; statistics over seeds are another matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from p3s.cli.console import table_console
from p3s.errors import UserError
from p3s.report.extras import require_matplotlib
from p3s.report.results import read_run
from p3s.report.sparkline import sparkline


@dataclass(frozen=True)
class RunCurve:
    """What a comparison needs from a run."""

    path: Path
    label: str
    env: str
    evaluations: list[dict[str, Any]]

    def at(self, step: int) -> dict[str, Any]:
        """The last evaluation at or before a step."""
        return [row for row in self.evaluations if row["step"] <= step][-1]


def read_curve(path: Path) -> RunCurve:
    """A run's name and evaluations."""
    run, _ = read_run(path)
    if not run.evaluations:
        raise UserError(f"{path} has no evaluation yet")
    return RunCurve(path, f"{run.method}, seed {run.seed}", run.env, run.evaluations)


def common_step(curves: list[RunCurve]) -> int:
    """The last step at which every run can be compared."""
    last = min(curve.evaluations[-1]["step"] for curve in curves)
    for curve in curves:
        if curve.evaluations[0]["step"] > last:
            raise UserError(f"{curve.path} has no evaluation by step {last:,}, where others end")
    return last


def comparison_table(curves: list[RunCurve]) -> Table:
    """One row per run, the best score first."""
    step = common_step(curves)
    envs = {curve.env for curve in curves}
    where = f" on {envs.pop()}" if len(envs) == 1 else ""
    table = Table(
        title=Text(f"at {step:,} environment steps{where}"), title_justify="left", box=None
    )
    table.add_column("method", no_wrap=True)
    for name in ("score", "champion", "best", "updates", "steps", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("run" if where else "environment, run", overflow="fold")
    for curve in sorted(curves, key=lambda curve: -curve.at(step)["score"]):
        row, last = curve.at(step), curve.evaluations[-1]
        champion = row.get("champion_return")
        table.add_row(
            Text(curve.label),
            f"{row['score']:,.1f}",
            "-" if champion is None else f"{champion:,.1f}",
            f"{max(each['score'] for each in curve.evaluations):,.1f}",
            f"{row['updates']:,}",
            f"{last['step']:,}",
            f"{row['seconds']:,.0f} s",
            Text(str(curve.path) if where else f"{curve.env}, {curve.path}"),
        )
    return table


def draw_curves(curves: list[RunCurve], out: Path) -> None:
    """Learning curves as PNG, SVG or PDF, one panel per environment."""
    require_matplotlib().use("Agg")
    from matplotlib import pyplot

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"curves are drawn as .png, .svg or .pdf, not {out.name!r}")
    envs = sorted({curve.env for curve in curves})
    figure, panels = pyplot.subplots(
        1, len(envs), figsize=(7 * len(envs), 4), squeeze=False, layout="constrained"
    )
    for env, panel in zip(envs, panels[0], strict=True):
        for curve in curves:
            if curve.env == env:
                steps = [row["step"] for row in curve.evaluations]
                panel.plot(steps, [row["score"] for row in curve.evaluations], label=curve.label)
        panel.set(title=env, xlabel="environment steps, all learners", ylabel="score")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def compare(paths: list[Path], out: Path | None, terminal: bool) -> None:
    """Print the table; draw the curves to a file, to the terminal, or to both."""
    curves = [read_curve(path) for path in paths]
    console = table_console()
    console.print(comparison_table(curves))
    if terminal:
        width = max(len(curve.label) for curve in curves)
        for curve in curves:
            line = sparkline([row["score"] for row in curve.evaluations])
            console.print(f"{curve.label:<{width}}  {line}", highlight=False, markup=False)
    if out is not None:
        draw_curves(curves, out)
        console.print(f"wrote {out}", highlight=False)


@dataclass(frozen=True)
class Options:
    """Put runs side by side: a table, and their learning curves."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders."""
    out: Path | None = None
    """Draw the learning curves into this file (.png, .svg or .pdf)."""
    terminal: bool = False
    """Draw them in the terminal."""


def run(options: Options) -> int:
    """Print the table, and draw the curves where asked."""
    if not options.runs:
        raise UserError("give the run folders to compare")
    compare(list(options.runs), options.out, options.terminal)
    return 0
