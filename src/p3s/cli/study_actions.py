"""What `p3s study show`, `run`, `status` and `export` do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from p3s.cli.console import table_console
from p3s.cli.study import Budget, Export, Run, Show, Status
from p3s.errors import UserError
from p3s.machine import available_cores
from p3s.report.formatting import presets_text
from p3s.study.catalog import KEPT, catalog, find_study, kept_study
from p3s.study.cells import Cell, check_environments, make_cells, select
from p3s.study.definition import Study
from p3s.study.display import StudyDisplay, grid_table, status_table, summary
from p3s.study.estimate import estimate
from p3s.study.folder import StudyFolder
from p3s.study.launching import Launcher, LocalLauncher
from p3s.study.references import complete_references
from p3s.study.scheduler import Scheduler, SchedulerOptions


def _chosen(source: str, budget: Budget) -> tuple[Study, list[Cell], list[Cell], int]:
    """A study with its budget, all its cells, those asked for, and how many at a time."""
    study = find_study(source).with_budget(budget.steps, budget.seeds).with_preset(budget.preset)
    cells = make_cells(study)
    chosen = select(cells, budget.only)
    if budget.jobs is not None and budget.jobs < 1:
        raise UserError(f"jobs must be at least 1, not {budget.jobs}")
    # One core each: environments and evaluations use no more than that, and two cores learn
    # networks of this size less than twice as fast. However few cells there are, the share
    # stays the same, and with it every bit of the results.
    jobs = len(available_cores()) if budget.jobs is None else budget.jobs
    return study, cells, chosen, jobs


def show(options: Show) -> int:
    """Say what a study would run."""
    study, _, cells, jobs = _chosen(options.study, options.budget)
    check_environments(study, cells)
    console = table_console()
    console.print(f"{study.name}: {study.title}", highlight=False, markup=False)
    counts = Counter((cell.method.label, cell.env.label) for cell in cells)
    seeds = {cell.id: str(counts[cell.method.label, cell.env.label]) for cell in cells}
    console.print(grid_table("number of seeds", cells, seeds))
    total = sum(cell.config.options.steps for cell in cells)
    console.print(
        f"{len(cells)} cells of up to {study.steps:,} steps: {total:,} steps in total",
        highlight=False,
    )
    presets = presets_text((cell.method.label, cell.config.preset) for cell in cells)
    console.print(presets, highlight=False, markup=False, soft_wrap=True)
    folder = StudyFolder(_folder(options.study, study))
    for line in estimate(cells, folder, jobs, options.calibrate, console):
        console.print(line, highlight=False)
    return 0


def run(options: Run) -> int:
    """Run a study; the exit code."""
    study, all_cells, cells, jobs = _chosen(options.study, options.budget)
    folder = StudyFolder(options.out or _folder(options.study, study))
    _refuse_other_study(folder, study)
    check_environments(study, cells)
    folder.check_runs(all_cells)
    folder.write(study, all_cells)
    console = table_console()
    console.print(
        f"study folder: {folder.path} ({len(cells)} cells, {jobs} at a time)", highlight=False
    )
    settings = SchedulerOptions(jobs, options.retry_failed, options.discard_checkpoints)
    with _launcher(options, folder, jobs) as launcher, StudyDisplay(cells, console) as display:
        complete_references(folder, cells, display.say)
        code = Scheduler(folder, cells, settings, display, launcher).run()
    _print_status(console, folder, cells)
    if code > 1:
        console.print(f"to continue: p3s study run {folder.path}", highlight=False, soft_wrap=True)
    return code


@contextmanager
def _launcher(options: Run, folder: StudyFolder, jobs: int) -> Iterator[Launcher]:
    """Who starts the runs."""
    if options.engine == "local":
        yield LocalLauncher(jobs)
        return
    from p3s.study.on_ray import RayLauncher  # needs ray, an extra

    launcher = RayLauncher(
        folder.path, options.address, options.cell_cpus, options.cell_gpus, options.budget.jobs
    )
    try:
        yield launcher
    finally:
        launcher.close()


def _refuse_other_study(folder: StudyFolder, study: Study) -> None:
    if (folder.path / "study.toml").exists():
        other = kept_study(folder.path).name
        if other != study.name:
            raise UserError(f"{folder.path} holds the study {other!r}: choose another --out")
    elif folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UserError(f"{folder.path} exists and is not a study: choose another --out")


def _folder(source: str, study: Study) -> Path:
    """Where a study is kept: the folder itself, where that was given instead of a name."""
    if source not in catalog() and Path(source).is_dir():
        return Path(source)
    return KEPT / (source if (KEPT / source).is_dir() else study.name)


def _existing(source: str) -> tuple[Study, StudyFolder]:
    """A study as its folder says it: its name may have other steps, seeds and another preset."""
    path = _folder(source, find_study(source))
    if not (path / "study.toml").is_file():
        raise UserError(f"there is no study in {path} yet: p3s study run {source}")
    return kept_study(path), StudyFolder(path)


def status(options: Status) -> int:
    """Print how the cells stand."""
    study, folder = _existing(options.study)
    _print_status(table_console(), folder, make_cells(study))
    return 0


def _print_status(console: Console, folder: StudyFolder, cells: list[Cell]) -> None:
    progress = {cell.id: folder.progress(cell) for cell in cells}
    console.print(status_table(cells, progress))
    for cell in cells:
        if progress[cell.id].state == "failed":
            console.print(
                f"{cell.id} failed: {progress[cell.id].error} ({folder.failure(cell)})",
                highlight=False,
                markup=False,
                soft_wrap=True,
                style="red",
            )
    console.print(summary(cells, progress))


def export(options: Export) -> int:
    """Write the results as a table."""
    _, folder = _existing(options.study)
    from p3s.report.export import export_results  # needs polars, an extra

    export_results(folder.path, options.out, options.also)
    print(f"wrote {options.out}")
    return 0
