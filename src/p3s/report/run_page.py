"""The page of a single run, written into its folder when training ends."""

from __future__ import annotations

from pathlib import Path

from p3s.errors import UserError
from p3s.report.page import render_run
from p3s.report.results import read_run
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
