"""`p3s study`: list, show, run, status and export, and what their options are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from p3s.cli.console import table_console
from p3s.study.catalog import catalog, find_study

Source = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME|FILE.toml|DIR")]


@dataclass(frozen=True)
class Budget:
    """How much of a study."""

    steps: int | None = None
    """Environment steps of every run, instead of the study's."""
    seeds: int | None = None
    """How many seeds, instead of the study's."""
    preset: str | None = None
    """recommended, paper, authors or parallel, instead of the study's; methods with their own keep
    theirs."""
    only: str | None = None
    """Only some cells: KEY=VALUE,... with the keys env, method, scheme, algorithm, preset, seed,
    id. Values of one key are alternatives and may have * and ?."""
    jobs: int | None = None
    """Runs at a time, each with an equal share of the cores; as many as there are cores unless
    given."""


@dataclass(frozen=True)
class List:
    """List the studies that come with p3s."""


@dataclass(frozen=True)
class Show:
    """Say what a study would run, and about how long and how large it would be."""

    study: Source
    """Name of a study, a TOML file, or the folder of a study."""
    budget: Budget = Budget()
    calibrate: bool = True
    """Train each method for a moment to tell how long the study takes on this machine."""


@dataclass(frozen=True)
class Run:
    """Run a study: start its runs, continue interrupted ones, skip the rest."""

    study: Source
    """Name of a study, a TOML file, or the folder of a study to continue."""
    budget: Budget = Budget()
    out: Path | None = None
    """Folder of the study; studies/NAME unless given."""
    retry_failed: bool = False
    """Run failed cells again, from their last checkpoints; otherwise they are left alone."""
    discard_checkpoints: bool = False
    """Remove the checkpoints of runs as they complete; a longer run then starts again."""
    engine: Literal["local", "ray"] = "local"
    """Where runs go: this machine, or wherever a Ray cluster has room for them."""
    address: str | None = None
    """Address of the Ray cluster; by default Ray is started on this machine."""
    cell_cpus: int = 1
    """CPUs that each run asks of the Ray cluster. The last bits of results depend on it."""
    cell_gpus: int = 0
    """GPUs that each run asks of the Ray cluster."""


@dataclass(frozen=True)
class Status:
    """Print how the cells of a study stand."""

    study: Source
    """Folder of a study, or a name or TOML file whose folder is studies/NAME."""


@dataclass(frozen=True)
class Export:
    """Write a study's results as one table: one row per run, evaluation and learner."""

    study: Source
    """Folder of a study, or a name or TOML file whose folder is studies/NAME."""
    out: Annotated[Path, tyro.conf.arg(aliases=("-o",))]
    """File to write: .parquet or .csv."""
    also: tuple[Path, ...] = ()
    """Tables and folders with runs of this study from other machines, to be written along; a run
    that is in several counts once, where it got furthest."""


@tyro.conf.configure(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Options:
    """Run grids of trainings, such as the paper's figures and tables."""

    action: (
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Run, tyro.conf.subcommand("run")]
        | Annotated[Status, tyro.conf.subcommand("status")]
        | Annotated[Export, tyro.conf.subcommand("export")]
    )


def run(options: Options) -> int:
    """Do what the command line asks for; the exit code."""
    action = options.action
    if isinstance(action, List):
        return _list()
    find_study(action.study)  # a mistyped name is told before jax is imported
    from p3s.cli import study_actions

    match action:
        case Show():
            return study_actions.show(action)
        case Run():
            return study_actions.run(action)
        case Status():
            return study_actions.status(action)
        case Export():
            return study_actions.export(action)


def _list() -> int:
    table = Table("study", "title", box=None, pad_edge=False)
    for name in ("cells", "steps each"):
        table.add_column(name, justify="right")
    for name in catalog():
        study = find_study(name)
        table.add_row(name, study.title, str(study.num_cells), f"{study.steps:,}")
    table_console().print(table)
    return 0
