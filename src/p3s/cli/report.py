"""`p3s report`: runs or a study as one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.errors import UserError
from p3s.report.export import SUFFIXES, load_results, results_of
from p3s.report.page import build_report, render_report
from p3s.report.results import Results, read_results
from p3s.report.run_page import PAGE, write_run_page
from p3s.runs.files import write_text
from p3s.tuning.storage import is_search


@dataclass(frozen=True)
class Options:
    """Write a report of runs or of a study as one web page that needs no network."""

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS|STUDY|TABLE")
    ]
    """Run folders, folders that contain runs, a study's folder, or tables (.parquet, .csv) that p3s
    study export wrote; one run gets its own page, and so does a search of p3s tune."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Page to write; report.html in the one folder given, or here, unless given."""
    figures: Path | None = None
    """Write the figures (PNG, SVG, PDF) and tables (Markdown, LaTeX, CSV) into this folder too."""
    title: str | None = None
    """Title of the page."""
    seed: int = 0
    """Seed of the bootstrap."""


def run_report(options: Options) -> list[Path]:
    """Write the page, and figures and tables if asked for; the paths written."""
    out = _out(options)
    if options.figures is not None:
        from p3s.report.figures import require_matplotlib

        require_matplotlib()
    if len(options.runs) == 1 and is_search(options.runs[0]):
        if options.figures is not None:
            raise UserError("figures are drawn of runs: give the folder of the trials", "figures")
        from p3s.tuning.page import write_search_page

        return [write_search_page(options.runs[0], out, options.title)]
    single = len(options.runs) == 1 and (options.runs[0] / "config.json").is_file()
    if single:
        write_run_page(options.runs[0], out, options.title)
        if options.figures is None:
            return [out]
    report = build_report(_results(options), options.seed)
    if not single:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, render_report(report))
    written = [out]
    if options.figures is not None:
        from p3s.report.figures import draw_figures
        from p3s.report.tables import write_tables

        written += draw_figures(report, options.figures)
        written += write_tables(report.summary, options.figures)
    return written


def run(options: Options) -> int:
    """Write the report and name the files."""
    for path in run_report(options):
        print(f"wrote {path}")
    return 0


def _results(options: Options) -> Results:
    if not any(path.suffix in SUFFIXES and path.is_file() for path in options.runs):
        return read_results(options.runs, options.title)
    return results_of(load_results(*options.runs), options.title or options.runs[0].stem)


def _out(options: Options) -> Path:
    if not options.runs:
        raise UserError("give run folders, or a study's folder, to report on")
    if options.out is None:
        one = len(options.runs) == 1 and not options.runs[0].is_file()
        return options.runs[0] / PAGE if one else Path(PAGE)
    if options.out.suffix not in (".html", ".htm"):
        raise UserError(f"the page is written as .html, not {options.out.name!r}")
    return options.out
