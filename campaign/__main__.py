"""Run the sections and print what each tried and lost; the exit code is 1 after a loss."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
import traceback
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from campaign import SECTIONS, Result


def main() -> int:
    """Read the command line and run what it asks for."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a sample of everything, in seconds")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="run this section")
    arguments = parser.parse_args()
    # Small networks: what they compute takes less time than it takes to optimize it.
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", quick)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder  # a key of its own
        return run_sections(arguments.only or SECTIONS, arguments.short)


def run_sections(names: Sequence[str], short: bool) -> int:
    """Run some sections; the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    rows: list[tuple[Result, float]] = []
    for name in names:
        console.print(f"{name} ...")
        started = time.monotonic()
        result = result_of(name, short)
        rows.append((result, time.monotonic() - started))
        for note in result.notes:
            console.print(f"  {note}", markup=False)
        console.print(f"  {result.tried:,} {result.name}, {result.lost:,} lost", markup=False)
    console.print(summary(rows))
    return int(any(result.lost for result, _ in rows))


def result_of(name: str, short: bool) -> Result:
    """Run a section; one that breaks is a loss, and the others still run."""
    try:
        return importlib.import_module(f"campaign.{name}").run(short=short)
    except Exception:
        return Result(f"{name}, which broke", 0, 1, [traceback.format_exc()])


def summary(rows: list[tuple[Result, float]]) -> Table:
    """The table of all sections."""
    table = Table("section", box=None, pad_edge=False)
    for name in ("tried", "lost", "seconds"):
        table.add_column(name, justify="right")
    for result, seconds in rows:
        table.add_row(result.name, f"{result.tried:,}", f"{result.lost:,}", f"{seconds:,.0f}")
    total = sum(seconds for _, seconds in rows)
    lost = sum(result.lost for result, _ in rows)
    table.add_row("all", f"{sum(r.tried for r, _ in rows):,}", f"{lost:,}", f"{total:,.0f}")
    return table


if __name__ == "__main__":
    raise SystemExit(main())
