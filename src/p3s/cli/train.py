"""`p3s train` and `p3s resume`: a run from its command line, to its end or to a signal."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import tyro

from p3s.cli.arguments import Environment, Wrappers, literal
from p3s.cli.early import value_of
from p3s.cluster.recovery import Recovery
from p3s.config import Config, misplaced, owners_of, resolve_values
from p3s.envs import make_env, parse_name
from p3s.errors import ShardLost, TrainingStopped, UserError
from p3s.field_names import ELSEWHERE, FAMILIAR, RENAMED
from p3s.learning import devices
from p3s.presets import DEFAULT_PRESET
from p3s.report.run_page import leave_run_page
from p3s.run_file import RunFile, read_run_file, run_file_text
from p3s.run_options import RunOptions
from p3s.runs import opening
from p3s.runs.best_policy import BEST, LAST
from p3s.runs.files import write_text
from p3s.runs.progress import TrainingProgress
from p3s.runs.records import RunFolder
from p3s.runs.tracebacks import keep_traceback
from p3s.suitability import suited_algorithm
from p3s.train import Training

_WHOLE = re.compile(r"\d+(\.\d+)?e\+?\d{1,2}")


@dataclass(frozen=True)
class Method:
    """What learns, on what. These decide the defaults of all other options."""

    env: Environment
    """Gymnasium id, 'module:Env-v0', or one of the paper's names ('Delayed Ant-v1')."""
    scheme: str = "p3s"
    """How the population is used: see 'p3s schemes'; or 'module:Name'."""
    algorithm: str | None = None
    """Base algorithm: see 'p3s algorithms'; or 'module:Name' for one of your own. By default the
    one that suits the environment ('p3s presets'), else td3."""
    preset: str = DEFAULT_PRESET
    """Set of defaults: recommended, paper (the text) or authors (their code)."""
    delay: int | Literal["end"] | None = None
    """Steps between two payments of reward, or end: all of it at the end of an episode."""
    env_kwargs: dict[str, str] = field(default_factory=dict)
    """Arguments of the environment, as pairs: max_episode_steps 500 frame_skip 2."""
    wrappers: Wrappers = ()
    """Wrappers of the environment, the innermost first: module:Name, called with it."""


@dataclass(frozen=True)
class FirstLook(Method):
    """The method, and the fields that defaults depend on."""

    num_learners: int | None = None
    num_copies: int | None = None
    distance: str | None = None


@dataclass(frozen=True)
class Output:
    """Where a run comes from, and where it goes."""

    config: Path | None = None
    """TOML file with the run's options; those of the command line win."""
    save_config: Path | None = None
    """Write all options of this run as such a file, before it begins."""

    out: Path | None = None
    """Run folder; runs/ENV/SCHEME-ALGORITHM/SEED-TIME unless given."""
    log: tuple[str, ...] = ()
    """Log to these as well: tensorboard, wandb, mlflow, trackio, csv."""
    report: bool = True
    """Leave a page with curves and settings, report.html, in the run folder."""


def parse_train(arguments: list[str]) -> tuple[Config, Output]:
    """A training's configuration from its command line.

    It is read twice: for the names, which decide every default, and then with those defaults.
    """
    refuse_old_flags(arguments)
    arguments = with_whole_numbers(arguments)
    file = _file_of(arguments)
    if file.env and (not arguments or arguments[0].startswith("-")):
        arguments = [file.env, *arguments]
    words = [word for word in arguments if word not in ("-h", "--help")]
    if len(words) < len(arguments) and (not words or words[0].startswith("-")):
        words = ["ENV", *words]
    if not words or words[0].startswith("-"):
        raise UserError("give the environment first: p3s train ENV [options]")
    defaults = FirstLook(
        words[0], file.scheme, file.algorithm, file.preset, file.delay, wrappers=file.wrappers
    )
    look = tyro.cli(
        FirstLook, args=words, default=defaults, prog="p3s train", return_unknown_args=True
    )[0]
    looked = {name: getattr(look, name) for name in ("num_learners", "num_copies", "distance")}
    given = {name: value for name, value in looked.items() if value is not None}
    fields = {**file.fields, **given}
    given_kwargs = {key: literal(value) for key, value in look.env_kwargs.items()}
    env = parse_name(look.env, look.delay, {**file.env_kwargs, **given_kwargs}, look.wrappers)
    algorithm = look.algorithm
    if algorithm is None:
        algorithm = suited_algorithm(look.scheme, env, partial(make_env, env))
    default = resolve_values(env, look.scheme, algorithm, look.preset, **fields)
    refuse_fields_of_others(arguments, default)
    options = dataclasses.make_dataclass(
        "Train",
        [
            ("method", Method),
            ("output", Output, field(default=Output(log=file.log))),
            ("run", RunOptions, field(default=default.options)),
            ("population", type(default.scheme), field(default=default.scheme)),
        ],
        frozen=True,
        kw_only=True,
    )
    parsed: Any = tyro.cli(
        options,
        args=arguments,
        prog="p3s train",
        description="Train a population on an environment.",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    config = dataclasses.replace(default, scheme=parsed.population, options=parsed.run).settled()
    chosen = any(word.startswith("--review-period") for word in arguments)
    if chosen and (problem := config.silent_chief()) is not None:
        raise UserError(problem)
    return config, parsed.output


def _file_of(arguments: list[str]) -> RunFile:
    """The file that a command line names; an empty one without --config."""
    named = value_of("--config", arguments)
    if named is None:
        return RunFile()
    file = read_run_file(Path(named))
    file.resolve()  # so that an error names its line
    return file


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
        found.append("--tensorboard is now --log tensorboard")
    for word in arguments:
        given = word.partition("=")[0].replace("_", "-")
        old = given.removeprefix("--").removeprefix("no-").replace("-", "_")
        if given.startswith("--") and old in RENAMED:
            new = given.replace(old.replace("_", "-"), RENAMED[old].replace("_", "-"))
            found.append(f"{given} is now {new}")
        elif given.startswith("--") and old in FAMILIAR:
            ours = " or ".join(f"--{name.replace('_', '-')}" for name in FAMILIAR[old])
            found.append(f"{given} is called {ours} here")
        elif given.startswith("--") and old in ELSEWHERE and old != "wrappers":
            found.append(f"{given} is no option: {ELSEWHERE[old]}")
    if found:
        raise UserError(", ".join(found))


def refuse_fields_of_others(arguments: list[str], config: Config) -> None:
    """Say whose field it is where a flag is given that this scheme and algorithm do not have."""
    groups = (Method, Output, RunOptions, type(config.scheme), type(config.algorithm))
    known = {field.name for group in groups for field in dataclasses.fields(group)}
    for word in arguments:
        key = word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if word.startswith("--") and key not in known and owners_of(key):
            raise misplaced(key, known, config.scheme.name, config.algorithm.name)


def run(arguments: list[str]) -> int:
    """`p3s train`."""
    config, output = parse_train(arguments)
    devices.prepare(config.options.devices)
    if output.save_config is not None:
        write_text(output.save_config, run_file_text(config, output.log))
        print(f"wrote {output.save_config}")
    if config.env is not None and config.env.note is not None:
        print(config.env.note)
    print(f"{config.describe()}: compiling ...", flush=True)
    training = opening.begin(config, output.out, log=output.log)
    for note in (config.nothing_learned(), config.silent_chief(), config.slow_precision()):
        if note is not None:
            print(f"note: {note}")
    if (cost := config.cost()) is not None:
        print(cost)
    print(training.experience.describe())
    return train(training, output.report)


def train(training: Training, report: bool) -> int:
    """Train to the end, or to a signal; either way the last state is on disk."""
    assert isinstance(training.folder, RunFolder)
    path, until = training.folder.path, training.options.steps
    print(f"run folder: {path}")
    if not training.exact_resume:
        print("this environment's state cannot be captured: a resume begins new episodes")
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
