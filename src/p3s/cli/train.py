"""`p3s train` and `p3s resume`: a run from its command line, to its end or to a signal."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import tyro

from p3s.cli import advice
from p3s.cli.arguments import Environment, Flag, Wrappers, literal
from p3s.cli.early import value_of
from p3s.cli.explain import explain
from p3s.config.options import RunOptions
from p3s.config.run import Config, field_values, resolve_spec
from p3s.config.run_file import read_run_file, run_file_text
from p3s.config.spec import Method, RunSpec, misplaced, owners_of
from p3s.errors import ShardLost, TrainingStopped, UserError
from p3s.fields.names import ELSEWHERE, FAMILIAR, RENAMED, RENAMED_WORDS, UPDATES, updates_per_step
from p3s.learning import devices
from p3s.report.progress import TrainingProgress
from p3s.report.run_page import leave_run_page
from p3s.runs import opening
from p3s.runs.best_policy import BEST, LAST
from p3s.runs.files import write_text
from p3s.runs.records import RunFolder
from p3s.runs.recovery import Recovery
from p3s.runs.tracebacks import keep_traceback
from p3s.train import Training

_WHOLE = re.compile(r"\d+(\.\d+)?e\+?\d{1,2}")


@dataclass(frozen=True)
class Words(Method):
    """What learns, on what. These decide the defaults of all other options."""

    env: Environment
    env_kwargs: dict[str, str] = field(default_factory=dict)
    wrappers: Wrappers = ()


@dataclass(frozen=True)
class FirstLook(Words):
    """The method, and the fields that defaults depend on."""

    num_learners: int | None = None
    envs_per_learner: int | None = None
    distance: str | None = None


@dataclass(frozen=True)
class Output:
    """Where a run comes from, and where it goes."""

    config: Path | None = None
    """TOML file with the run's options; those of the command line win."""
    save_config: Path | None = None
    """Write all options of this run as such a file, before it begins."""
    explain: Flag = False
    """Print the value of every field and where it comes from, and train nothing."""

    out: Path | None = None
    """Run folder; runs/ENV/SCHEME-ALGORITHM/SEED-TIME unless given."""
    loggers: tuple[str, ...] = ()
    """Log to these as well: tensorboard, wandb, mlflow, trackio, csv."""
    report: bool = True
    """Leave a page with curves and settings, report.html, in the run folder."""


def parse_train(arguments: list[str]) -> tuple[Config, Output]:
    """A training's configuration from its command line."""
    spec, output = parse_spec(arguments)
    config = resolve_spec(spec)
    given = "review_period" in flags_in(arguments)
    if given and (problem := advice.silent_chief(config)) is not None:
        raise UserError(problem)
    return config, output


def parse_spec(arguments: list[str], command: str = "p3s train") -> tuple[RunSpec, Output]:
    """The run that a command line declares.

    It is read twice: for the names, which decide every default, and then with those defaults.
    """
    refuse_old_flags(arguments)
    arguments = with_whole_numbers(arguments)
    named = value_of("--config", arguments)
    spec = RunSpec("") if named is None else read_run_file(Path(named))
    if spec.env and (not arguments or arguments[0].startswith("-")):
        arguments = [spec.env, *arguments]
    words = [word for word in arguments if word not in ("-h", "--help")]
    if len(words) < len(arguments) and (not words or words[0].startswith("-")):
        words = ["ENV", *words]
    if not words or words[0].startswith("-"):
        raise UserError(f"give the environment first: {command} ENV [options]")
    look = tyro.cli(
        FirstLook,
        args=words,
        default=FirstLook(
            words[0], spec.scheme, spec.algorithm, spec.preset, spec.delay, wrappers=spec.wrappers
        ),
        prog=command,
        return_unknown_args=True,
    )[0]
    spec = with_words(spec, look, flags_in(arguments))
    default = resolve_spec(spec, check=False)
    refuse_fields_of_others(arguments, default)
    options = dataclasses.make_dataclass(
        "Train",
        [
            ("method", Words),
            ("output", Output, field(default=Output(loggers=spec.loggers))),
            ("run", RunOptions, field(default=default.options)),
            ("population", type(default.scheme), field(default=default.scheme)),
        ],
        frozen=True,
        kw_only=True,
    )
    parsed: Any = tyro.cli(
        options,
        args=arguments,
        prog=command,
        description="Train a population on an environment.",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    parts = (parsed.run, parsed.population, parsed.population.algorithm)
    values = {name: value for part in parts for name, value in field_values(part).items()}
    given = {name: values[name] for name in flags_in(arguments) if name in values}
    return dataclasses.replace(spec, fields={**spec.fields, **given}), parsed.output


def with_words(spec: RunSpec, look: FirstLook, flags: list[str]) -> RunSpec:
    """A file's declaration with the names and fields of a command line, which win."""
    method = {f.name: getattr(look, f.name) for f in dataclasses.fields(Words)}
    given_kwargs = {key: literal(value) for key, value in look.env_kwargs.items()}
    method["env_kwargs"] = {**spec.env_kwargs, **given_kwargs}
    looked = {
        name: getattr(look, name) for name in ("num_learners", "envs_per_learner", "distance")
    }
    own = {name: value for name, value in looked.items() if value is not None}
    if look.env != spec.env:
        flags = [*flags, "env"]
    return dataclasses.replace(
        spec,
        **method,
        fields={**spec.fields, **own},
        origins={**spec.origins, **dict.fromkeys(flags, "")} if spec.origins else {},
    )


def flags_in(arguments: list[str]) -> list[str]:
    """The names of the options on a command line."""
    flags = [word.partition("=")[0].removeprefix("--") for word in arguments if word[:2] == "--"]
    return [flag.removeprefix("no-").replace("-", "_") for flag in flags]


def with_whole_numbers(arguments: list[str]) -> list[str]:
    """1e6 written out, as options that take whole numbers want it."""
    words = list(arguments)
    for index, (option, word) in enumerate(pairwise(arguments), start=1):
        whole = _WHOLE.fullmatch(word) and float(word) % 1 == 0
        if whole and option.startswith("--") and option != "--env-kwargs":
            words[index] = str(int(float(word)))
    return words


def refuse_old_flags(arguments: list[str]) -> None:
    """Name our flags where those of p3s 0.1 or of other libraries are given."""
    found: list[str] = []
    if "--tensorboard" in arguments:
        found.append("--tensorboard is now --loggers tensorboard")
    dashed = [word.replace("_", "-") if word.startswith("--") else word for word in arguments]
    flags = {name: f"--{name.replace('_', '-')}" for name in UPDATES}
    updates = {name: value_of(flag, dashed) for name, flag in flags.items()}
    if updates := {name: value for name, value in updates.items() if value is not None}:
        said = " ".join(f"{flags[name]} {value}" for name, value in updates.items())
        found.append(f"{said} is --updates-per-step {updates_per_step(updates)} here")
    renamed = {**RENAMED, **RENAMED_WORDS}
    for word in arguments:
        given = word.partition("=")[0].replace("_", "-")
        old = given.removeprefix("--").removeprefix("no-").replace("-", "_")
        if given.startswith("--") and old in renamed:
            new = given.replace(old.replace("_", "-"), renamed[old].replace("_", "-"))
            found.append(f"{given} is now {new}")
        elif given.startswith("--") and old in FAMILIAR:
            ours = " or ".join(f"--{name.replace('_', '-')}" for name in FAMILIAR[old])
            found.append(f"{given} is called {ours} here")
        elif given.startswith("--") and old in ELSEWHERE:
            found.append(f"unknown option {given}: {ELSEWHERE[old]}")
    if found:
        raise UserError(", ".join(found))


def refuse_fields_of_others(arguments: list[str], config: Config) -> None:
    """Say whose field it is where a flag is given that this scheme and algorithm do not have."""
    groups = (Words, Output, RunOptions, type(config.scheme), type(config.algorithm))
    known = {field.name for group in groups for field in dataclasses.fields(group)}
    for key in flags_in(arguments):
        if key not in known and owners_of(key):
            raise misplaced(key, known, config.scheme.name, config.algorithm.name)


def run(arguments: list[str]) -> int:
    """`p3s train`."""
    config, output = parse_train(arguments)
    if output.explain:
        explain(config)
        return 0
    devices.prepare(config.options.devices)
    if output.save_config is not None:
        write_text(output.save_config, run_file_text(config, output.loggers))
        print(f"wrote {output.save_config}")
    if config.env is not None and config.env.note is not None:
        print(config.env.note)
    print(f"{config.describe()}: compiling ...", flush=True)
    training = opening.begin(config, output.out, loggers=output.loggers)
    about = [*advice.notes(config), training.about_observation, training.experience.describe()]
    return train(training, output.report, [line for line in about if line is not None])


def train(training: Training, report: bool, about: Sequence[str] = ()) -> int:
    """Train to the end, or to a signal; either way the last state is on disk.

    about: lines for the user, told when signals are heard already.
    """
    assert isinstance(training.folder, RunFolder)
    path, until = training.folder.path, training.options.steps
    received: list[int] = []

    def request_stop(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        training.stop_requested = True
        with contextlib.suppress(OSError):  # who read it may have been stopped too
            os.write(2, b"stopping after this step, with a checkpoint; once more to stop at once\n")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, request_stop)
    for line in (*about, f"run folder: {path}"):
        print(line)
    if not training.crew.exact_resume:
        print("this environment's state cannot be captured: a resume begins new episodes")
    recovery, page = Recovery(), ""
    try:
        while True:
            try:
                with TrainingProgress(training, until):
                    training.run(until)
                break
            except ShardLost as error:
                print(f"note: {error}", file=sys.stderr)
                training = recovery.reopened(training, error)
                training.stop_requested = bool(received)
                print(f"continuing from step {training.total_steps:,}", file=sys.stderr)
        if received:
            training.checkpoint()
        elif report:
            page = leave_run_page(path)  # loggers take it along
    except TrainingStopped as error:
        hints = []
        if (file := keep_traceback(path, error)) is not None:
            hints.append(f"traceback: {file}")
        if any((path / "checkpoints").glob("step-*")):
            hints.append(f"the last checkpoint is kept: p3s resume {path}")
        raise TrainingStopped(f"{error} ({'; '.join(hints)})" if hints else str(error)) from error
    finally:
        training.close()
    if received:
        print(f"stopped at step {training.total_steps:,}: p3s resume {path}")
        return 128 + received[0]
    if training.stop_reason is not None:
        print(f"stopped at step {training.total_steps:,}: {training.stop_reason}")
    print(f"policy: {path / LAST}")
    if (path / BEST).exists():
        print(f"best policy: {path / BEST}")
    if report:
        print(page)
    return 0
