"""The progress of a study: a live table in a terminal, else one line per event."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from p3s.report.formatting import duration_text
from p3s.study.cells import Cell
from p3s.study.folder import Progress

STATES = {
    "running": "cyan",
    "failed": "bold red",
    "stopped": "yellow",
    "waiting": "dim",
    "complete": "green",
}
"""The states of a cell and their colors, in the order of the table."""


class StudyDisplay:
    """Shows a study while it runs; use it as a context manager."""

    def __init__(self, cells: list[Cell], console: Console | None = None) -> None:
        self._cells = cells
        self._console = console or Console()
        self._live: Live | None = None
        self._started = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> StudyDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, cell: Cell, progress: Progress) -> None:
        """Print that a cell has started or ended."""
        took = duration_text(time.monotonic() - self._started)
        parts = [f"{took:>9}", f"{progress.state:<8}", cell.id]
        if progress.step:
            parts.append(f"step {progress.step:,}")
        if progress.score is not None:
            parts.append(f"score {progress.score:,.1f}")
        if progress.error is not None:
            parts.append(progress.error)
        style = STATES[progress.state] if progress.state in ("failed", "complete") else None
        text = escape("  ".join(parts))
        self._console.print(text, highlight=False, soft_wrap=True, style=style)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)

    def refresh(self, progress: dict[str, Progress]) -> None:
        """Redraw the table."""
        if self._live is not None:
            table = status_table(self._cells, progress, self._console.height - 6)
            self._live.update(Group(table, summary(self._cells, progress)), refresh=True)


def status_table(
    cells: list[Cell], progress: dict[str, Progress], most_rows: int | None = None
) -> Table:
    """One row per cell: state, step, score, speed and time left; running cells first."""
    table = Table(box=None, pad_edge=False)
    for name in ("method", "environment"):
        table.add_column(name, no_wrap=True)
    table.add_column("seed", justify="right")
    table.add_column("state")
    for name in ("step", "score", "steps/s", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    order = list(STATES)
    rows = sorted(cells, key=lambda cell: order.index(progress[cell.id].state))
    shown = rows if most_rows is None or len(rows) <= most_rows else rows[: max(most_rows - 1, 1)]
    for cell in shown:
        own = progress[cell.id]
        left = seconds_left(cell, own)
        table.add_row(
            escape(cell.method.label),
            escape(cell.env.label),
            str(cell.seed),
            Text(own.state, style=STATES[own.state]),
            f"{own.step:,}/{cell.config.options.steps:,}",
            _score(own),
            "-" if own.steps_per_second is None else f"{own.steps_per_second:,.0f}",
            "-" if left is None else duration_text(left),
        )
    if len(shown) < len(rows):
        table.add_row(f"... and {len(rows) - len(shown)} more", style="dim")
    return table


def _score(own: Progress) -> str:
    if own.score is not None:
        return f"{own.score:,.1f}"
    return "-" if own.state == "waiting" else "no evaluation yet"


def summary(cells: list[Cell], progress: dict[str, Progress]) -> Text:
    """How many cells are in each state, and the time left at the speed of the running ones."""
    counts = Counter(progress[cell.id].state for cell in cells)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    running = [progress[cell.id] for cell in cells if progress[cell.id].state == "running"]
    rate = sum(own.steps_per_second or 0.0 for own in running)
    steps = sum(
        max(cell.config.options.steps - progress[cell.id].step, 0)
        for cell in cells
        if progress[cell.id].state not in ("failed", "complete")
    )
    if rate > 0:
        parts.append(f"about {duration_text(steps / rate)} left")
    return Text(f"{len(cells)} cells: " + ", ".join(parts))


def seconds_left(cell: Cell, progress: Progress) -> float | None:
    """Time left for a running cell at its speed so far; None if that is unknown."""
    if progress.state != "running" or not progress.steps_per_second:
        return None
    return max(cell.config.options.steps - progress.step, 0) / progress.steps_per_second


def grid_table(title: str, cells: list[Cell], values: dict[str, str]) -> Table:
    """Environments by methods, with the value of each cell by id.

    Steps have a column of their own where environments differ in them.
    """
    table = Table("environment", box=None, pad_edge=False, title=title, title_justify="left")
    methods = list(dict.fromkeys(cell.method.label for cell in cells))
    steps = {cell.env.label: cell.config.options.steps for cell in cells}
    differ = len(set(steps.values())) > 1
    if differ:
        table.add_column("steps", justify="right")
    for method in methods:
        table.add_column(escape(method), justify="right", overflow="fold")
    shown = {(cell.method.label, cell.env.label): values[cell.id] for cell in cells}
    for env, number in steps.items():
        own = [f"{number:,}"] if differ else []
        table.add_row(escape(env), *own, *(shown.get((method, env), "-") for method in methods))
    return table
