"""`p3s tune`: a search of hyper-parameters, whose runs have the options of `p3s train`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from p3s.cli.console import table_console
from p3s.cli.train import Output, parse_spec
from p3s.config.run import Config, resolve_spec
from p3s.errors import UserError
from p3s.learning import devices
from p3s.machine import available_cores, core_shares, require_optuna
from p3s.report.formatting import count_text, duration_text
from p3s.study.estimate import TIMED_SECONDS, on_cores, pace_of
from p3s.study.launching import Launcher, LocalLauncher
from p3s.tuning.asked import search_spaces
from p3s.tuning.declaration import Declaration, Proposals
from p3s.tuning.page import leave_page
from p3s.tuning.results import importance_line, leave_best, trial_table
from p3s.tuning.storage import JOURNAL
from p3s.tuning.study import Tuning, counted
from p3s.tuning.workers import TRIAL, Goal, Workers

KEPT = Path("tune")
"""The folder in which searches are kept, each under its name."""
LEAST_SEEDS = 5
"""With fewer, a Wilcoxon test is sure of nothing before the last seed."""


@dataclass(frozen=True)
class Options:
    """Search hyper-parameters by trials. All other options are those of p3s train ENV: those of the
    run that all trials have in common."""

    search: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD|FILE.toml")] = ()
    """Fields to search, or a TOML file whose table [search] has ranges and choices; by default a
    set for the algorithm and the scheme."""
    trials: Annotated[int, tyro.conf.arg(aliases=("--n-trials",))] = 50
    """Trials that the study is to have finished, complete or pruned, those of earlier calls too."""
    max_total_trials: int | None = None
    """Trials after which none is begun, failed ones included; by default twice `trials`."""
    seeds: int = 1
    """Seeds that each trial is trained with: --seed and those that follow."""
    sampler: Literal["tpe", "random"] = "tpe"
    """How trials are proposed."""
    pruner: Literal["halving", "median", "wilcoxon", "none"] = "median"
    """How trials end early: judged after evaluations, or (wilcoxon) between seeds."""
    startup_trials: Annotated[int, tyro.conf.arg(aliases=("--n-startup-trials",))] = 10
    """Trials before tpe and median begin to judge."""
    jobs: Annotated[int | None, tyro.conf.arg(aliases=("--n-jobs",))] = None
    """Trials at a time, each in a process with an equal share of the cores; 1 unless given, on a
    cluster as many as it has room for."""
    engine: Literal["local", "ray"] = "local"
    """Where trials run: this machine, or wherever a Ray cluster has room for them. Its machines
    have to see the folder and the storage."""
    address: str | None = None
    """Address of the Ray cluster; by default Ray is started on this machine."""
    trial_cpus: int = 1
    """CPUs that each trial asks of the Ray cluster."""
    trial_gpus: int = 0
    """GPUs that each trial asks of the Ray cluster."""
    storage: str | None = None
    """Journal file of the study, or the URL of a database (sqlite:///FILE); by default journal.log
    in the folder."""
    study_name: str | None = None
    """Name of the study; made from environment, scheme and algorithm unless given."""
    calibrate: bool = True
    """Train for a moment first, to tell how long a trial takes."""
    discard_checkpoints: bool = False
    """Remove the checkpoints of trials as they finish."""


def run(arguments: list[str]) -> int:
    """`p3s tune`."""
    env = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    options, rest = tyro.cli(
        Options, args=arguments[len(env) :], prog="p3s tune ENV", return_unknown_args=True
    )
    require_optuna()
    spec, output = parse_spec([*env, *rest], "p3s tune")
    config = resolve_spec(spec)
    _check(options, output, config)
    declared = Declaration(spec, search_spaces(spec, options.search), options.seeds)
    name = options.study_name or _name(config)
    folder = output.out or KEPT / name
    tuning = Tuning(
        folder,
        options.storage or str(folder / JOURNAL),
        name,
        Proposals(options.sampler, options.pruner, options.startup_trials),
    )
    tuning.declare(declared)
    return _search(tuning, options, config, output.loggers)


def _check(options: Options, output: Output, config: Config) -> None:
    """Raise UserError for values out of range, and for options of p3s train alone."""
    for name in ("trials", "seeds", "jobs", "max_total_trials"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    if options.startup_trials < 0:
        raise UserError(f"startup_trials must be at least 0, not {options.startup_trials}")
    if options.pruner == "wilcoxon" and options.seeds < LEAST_SEEDS:
        raise UserError(
            f"pruner wilcoxon compares trials seed by seed: give --seeds {LEAST_SEEDS} or more"
        )
    if config.options.evaluation_period == 0:
        raise UserError("trials are judged by evaluations: give an evaluation_period above 0")
    if output.explain or output.save_config is not None:
        raise UserError("--explain and --save-config are for p3s train")


def _name(config: Config) -> str:
    """The name of a study that has been given none."""
    assert config.env is not None
    late = "" if config.env.delay is None else f"-delay-{config.env.delay}"
    name = f"{config.env.id}{late}-{config.scheme.name}-{config.algorithm.name}"
    return re.sub(r"[^\w.-]+", "-", name).lower()


def _search(tuning: Tuning, options: Options, config: Config, log: tuple[str, ...]) -> int:
    """Say what it costs, search, and say what was found."""
    console = table_console()
    for line in _about(tuning, options, config):
        _print(console, line)
    most = options.max_total_trials or 2 * options.trials
    goal = Goal(options.trials, most, options.discard_checkpoints)
    missing = options.trials - counted(tuning.trials)["finished"]
    seconds = None
    if options.calibrate and missing > 0:
        seconds = _seconds_of_trial(config, options, console)
        _print(console, _time(seconds, missing, options))
    with _launcher(tuning, options) as launcher:
        code = Workers(tuning, goal, launcher, console, seconds).run()
    console.print(trial_table(tuning))
    found = [importance_line(tuning.study), *leave_best(tuning, log), leave_page(tuning)]
    if code:
        states = counted(tuning.trials)
        finished = f"{states['finished']} of {options.trials} trials are finished"
        found.append(f"{finished}, {states['FAIL']} failed: the same command goes on")
    for line in found:
        if line is not None:
            _print(console, line)
    return code


@contextmanager
def _launcher(tuning: Tuning, options: Options) -> Iterator[Launcher]:
    """Who starts the trials."""
    if options.engine == "local":
        yield LocalLauncher(options.jobs or 1, TRIAL)
        return
    from p3s.study.on_ray import RayLauncher  # needs ray, an extra

    launcher = RayLauncher(
        tuning.folder, options.address, options.trial_cpus, options.trial_gpus, options.jobs, TRIAL
    )
    try:
        yield launcher
    finally:
        launcher.close()


def _about(tuning: Tuning, options: Options, config: Config) -> Iterator[str]:
    """What is searched, and how much of it."""
    yield f"study {tuning.name}: {tuning.storage}, trials in {tuning.folder / 'trials'}"
    for name, space in tuning.declared.spaces.items():
        yield f"  {name:<24} {space}"
    states = counted(tuning.trials)
    missing = max(options.trials - states["finished"], 0)
    done = f" ({states['finished']} are finished)" if states["finished"] else ""
    steps = config.options.steps * options.seeds
    each = f"{count_text(options.seeds, 'seed')} × {config.options.steps:,} steps"
    yield (
        f"{count_text(options.trials, 'trial')}{done}, each of {each}: "
        f"at most {missing * steps:,} environment steps to go"
    )


def _seconds_of_trial(config: Config, options: Options, console: Console) -> float | None:
    """How long a trial takes that is not pruned, at the pace of the defaults.

    Each seed has to be compiled first, as it is here.
    """
    devices.prepare(config.options.devices)
    started = time.perf_counter()
    with (
        on_cores(core_shares(available_cores(), options.jobs or 1)[0]),
        console.status("timing a trial"),
    ):
        pace = pace_of(config)
    compiling = time.perf_counter() - started - TIMED_SECONDS
    return None if pace is None else (pace.seconds(config) + compiling) * options.seeds


def _time(seconds: float | None, missing: int, options: Options) -> str:
    if seconds is None:
        return "time: unknown"
    each = f"time: about {duration_text(seconds)} for a trial with the defaults"
    if options.engine == "ray" and options.jobs is None:
        return f"{each}; less where trials are pruned"
    jobs = options.jobs or 1
    total = duration_text(seconds * missing / min(jobs, missing))
    return f"{each}, so about {total} with {jobs} at a time; less where trials are pruned"


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
