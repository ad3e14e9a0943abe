"""Runs side by side: a table at the same number of environment steps, and learning curves.

Every curve is one run; statistics over seeds are another matter.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table
from rich.text import Text

from p3s.cli.console import table_console
from p3s.errors import UserError
from p3s.report.curves import method_curve
from p3s.report.formatting import duration_text
from p3s.report.results import Results, RunResult, labeled_by_settings, read_run
from p3s.report.sparkline import sparkline


def read_runs(paths: list[Path]) -> list[RunResult]:
    """The runs, each under a label of its own: its settings as far as they differ, and its seed."""
    runs = [read_run(path)[0] for path in paths]
    for run in runs:
        if not run.evaluations:
            raise UserError(f"{run.path} has no evaluation yet")
    return [
        dataclasses.replace(run, method=f"{run.method}, seed {run.seed}")
        for run in labeled_by_settings(runs)
    ]


def row_at(run: RunResult, step: int) -> dict[str, Any]:
    """The last evaluation at or before a step."""
    return [row for row in run.evaluations if row["step"] <= step][-1]


def common_step(runs: list[RunResult]) -> int:
    """The last step at which every run can be compared."""
    last = min(run.last_step for run in runs)
    for run in runs:
        if run.evaluations[0]["step"] > last:
            raise UserError(f"{run.path} has no evaluation by step {last:,}, where others end")
    return last


def comparison_table(runs: list[RunResult]) -> Table:
    """One row per run, the best score first."""
    step = common_step(runs)
    envs = {run.env for run in runs}
    where = f" on {envs.pop()}" if len(envs) == 1 else ""
    title = Text(f"at {step:,} environment steps{where}")
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("method", overflow="fold")
    for name in ("score", "champion", "best", "updates", "steps", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("run" if where else "environment, run", overflow="fold")
    for run in sorted(runs, key=lambda run: -row_at(run, step)["score"]):
        row = row_at(run, step)
        champion = row.get("champion_return")
        table.add_row(
            Text(run.method),
            f"{row['score']:,.1f}",
            "not chosen yet" if champion is None else f"{champion:,.1f}",
            f"{max(each['score'] for each in run.evaluations):,.1f}",
            f"{row['updates']:,}",
            f"{run.last_step:,}",
            duration_text(row["seconds"]),
            Text(str(run.path) if where else f"{run.env}, {run.path}"),
        )
    return table


def draw(runs: list[RunResult], out: Path) -> None:
    """Learning curves as PNG, SVG or PDF, one panel per environment."""
    from p3s.report.figures import FORMATS, save_curves

    if out.suffix.removeprefix(".") not in FORMATS:
        raise UserError(f"curves are drawn as .png, .svg or .pdf, not {out.name!r}")
    rng = np.random.default_rng(0)
    save_curves(Results("", runs), [method_curve([run], rng) for run in runs], out)


def compare(paths: list[Path], out: Path | None, terminal: bool) -> None:
    """Print the table; draw the curves to a file, to the terminal, or to both."""
    runs, console = read_runs(paths), table_console()
    console.print(comparison_table(runs))
    if terminal:
        width = max(len(run.method) for run in runs)
        for run in runs:
            line = sparkline([row["score"] for row in run.evaluations])
            console.print(f"{run.method:<{width}}  {line}", highlight=False, markup=False)
    if out is not None:
        draw(runs, out)
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
