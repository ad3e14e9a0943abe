"""Follow a run in the terminal: progress, score, each learner, the chief's numbers."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from p3s.chief import search_radius
from p3s.cli.arguments import Run
from p3s.errors import UserError, printable
from p3s.report.results import read_run
from p3s.report.sparkline import sparkline
from p3s.runs.files import write_text
from p3s.runs.records import is_complete, read_config
from p3s.runs.rows import read_intact_rows


def view(path: Path) -> Panel:
    """One look at a run."""
    run, notes = read_run(path)
    config = run.config
    metrics, note = read_intact_rows(path, "metrics")
    rows = {"metrics": metrics, "evaluations": run.evaluations, "lineage": run.lineage}
    if notes or note is not None:
        raise UserError("; ".join([*notes, *([note] if note else [])]))
    latest: dict[str, Any] = rows["metrics"][-1] if rows["metrics"] else {}
    done = latest.get("step", 0)
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=config["steps"], completed=done, width=40),
        f"{done:,}/{config['steps']:,} steps",
        f"{latest.get('steps_per_second', 0):,.0f} steps/s",
    )
    parts: list[Any] = [bar, _scores(rows["evaluations"]), _learners(latest)]
    if "shards" in latest:
        parts.append(_shards(latest["shards"]))
    reviews = [row for row in rows["lineage"] if "beta" in row]
    if reviews:
        parts.append(_chief(reviews, config["scheme_fields"]))
    env = config["environment"]["id"] if config["environment"] else "custom environment"
    title = printable(f"{config['scheme']}-{config['algorithm']} on {env}, seed {config['seed']}")
    return Panel(Group(*parts), title=Text(title), subtitle=Text(str(path)), expand=False)


def _scores(evaluations: list[dict[str, Any]]) -> Text:
    if not evaluations:
        return Text("score: no evaluation yet")
    scores = [row["score"] for row in evaluations]
    return Text(f"score {scores[-1]:,.1f} (best {max(scores):,.1f})  {sparkline(scores)}")


def _learners(latest: dict[str, Any]) -> Table:
    table = Table("learner", "recent return", "value loss", "policy loss", box=None)
    losses = latest.get("learners", {})
    for index, value in enumerate(latest.get("recent_returns", [])):
        own = [losses.get(name, [])[index : index + 1] for name in ("value_loss", "policy_loss")]
        table.add_row(str(index), _number(value), *(_number(*loss) for loss in own))
    return table


def _shards(shards: list[dict[str, float]]) -> Table:
    table = Table("shard", "steps/s", "waiting for others", box=None)
    for index, shard in enumerate(shards):
        rate, waiting = f"{shard['steps_per_second']:,.0f}", f"{shard['waiting']:.0%}"
        table.add_row(str(index), rate, waiting)
    return table


def _number(value: Any = None) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else "-"


def _chief(lineage: list[dict[str, Any]], fields: dict[str, Any]) -> Table:
    last = lineage[-1]
    table = Table.grid(padding=(0, 2))
    table.add_row("best learner", "not chosen yet" if last["best"] is None else str(last["best"]))
    table.add_row("β", f"{last['beta']:.4g}", sparkline([row["beta"] for row in lineage]))
    if last["spread"] is not None:
        target = search_radius(last["change"], fields.get("rho", 0.0), fields.get("d_min", 0.0))
        spreads = [row["spread"] for row in lineage if row["spread"] is not None]
        changes = [row["change"] for row in lineage if row["change"] is not None]
        spread = f"{last['spread']:.4g} (target {target:.4g})"
        table.add_row("spread", spread, sparkline(spreads))
        table.add_row("change", f"{last['change']:.4g}", sparkline(changes))
    return table


def watch(path: Path, refresh: float, once: bool, svg: Path | None = None) -> None:
    """Show a run until it is complete or the user has seen enough (Ctrl-C)."""
    if refresh <= 0:
        raise UserError(f"refresh must be above 0 seconds, not {refresh}")
    console = Console()
    if svg is not None:
        svg.parent.mkdir(parents=True, exist_ok=True)
        paper = Console(record=True, width=84, file=io.StringIO())
        paper.print(view(path))
        write_text(svg, paper.export_svg(title=f"p3s watch {path}"))
        return
    if once or not console.is_terminal:
        console.print(view(path))
        return
    with Live(view(path), console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(view(path), refresh=True)
                if is_complete(path, read_config(path)["steps"]):
                    return
                time.sleep(refresh)
        except KeyboardInterrupt:
            return


@dataclass(frozen=True)
class Options:
    """Follow a run in the terminal, while it trains or after."""

    run: Run
    """Run folder."""
    refresh: float = 2.0
    """Seconds between two looks."""
    once: bool = False
    """Print one look and exit."""
    svg: Path | None = None
    """Write one look as a picture and exit."""


def run(options: Options) -> int:
    """Show the run until it is complete."""
    watch(options.run, options.refresh, options.once, options.svg)
    return 0
