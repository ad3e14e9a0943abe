"""The command `p3s`: options are made from dataclass fields, help texts from their docstrings."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import mujoco
import tyro

from p3s import devices, runs
from p3s.algorithms import ALGORITHMS
from p3s.compare import compare
from p3s.config import Config, RunOptions, resolve
from p3s.enjoy import play
from p3s.envs.listing import list_environments
from p3s.errors import TrainingStopped, UserError, unknown
from p3s.export import export_onnx
from p3s.extensions import import_module, load_entry_points
from p3s.population import evaluate, load
from p3s.progress import TrainingProgress
from p3s.report.command import ReportOptions, leave_run_page, run_report
from p3s.schemes import SCHEMES
from p3s.study.command import StudyCommand, run_study_command
from p3s.theory.command import Theory, run_theory
from p3s.train import Training
from p3s.watch import watch

Environment = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
RunOrPolicy = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN|POLICY")]
OnnxFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.onnx")]
Word = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")]


@dataclass(frozen=True)
class Method:
    """What learns, on what. These decide the defaults of all other options."""

    env: Environment
    """Gymnasium id, 'module:Env-v0', or one of the paper's names ('Delayed Ant-v1')."""
    scheme: str = "p3s"
    """How the population is used: see 'p3s schemes'; or 'module:Name'."""
    algorithm: str = "td3"
    """Base algorithm: see 'p3s algorithms'; or 'module:Name' for one of your own."""
    preset: str = "paper"
    """Set of defaults: paper (the text) or authors (their code)."""
    delay: int | Literal["end"] | None = None
    """Pay rewards every so many steps, or only at the end of an episode."""


@dataclass(frozen=True)
class FirstLook(Method):
    """The method, and the one field that defaults depend on besides."""

    num_learners: int | None = None


@dataclass(frozen=True)
class Output:
    """Where a run goes."""

    out: Path | None = None
    """Run folder; runs/ENV/SCHEME-ALGORITHM/SEED-TIME unless given."""
    tensorboard: bool = False
    """Write TensorBoard scalars as well."""
    report: bool = True
    """Leave a page with curves and settings, report.html, in the run folder."""


@dataclass(frozen=True)
class Resume:
    """Continue a run from its last checkpoint, to the bit."""

    run: Run
    """Run folder."""
    steps: int | None = None
    """New total of environment steps, to make the run longer."""
    report: bool = True
    """Leave a page with curves and settings, report.html, in the run folder."""


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a trained policy, noiseless ones unless told otherwise."""

    policy: RunOrPolicy
    """Policy file, or run folder for its best policy."""
    episodes: int = 10
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    env: str | None = None
    """Another environment than the one it was trained on."""
    stochastic: bool = False
    """Play with the policy's own noise."""


@dataclass(frozen=True)
class Enjoy:
    """Watch a trained policy play, or film it."""

    policy: RunOrPolicy
    """Policy file, or run folder for its best policy."""
    video: Path | None = None
    """Write a film (.mp4 or .gif) instead of opening a window."""
    episodes: int = 1
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    env: str | None = None
    """Another environment than the one it was trained on."""


@dataclass(frozen=True)
class Watch:
    """Follow a run in the terminal, while it trains or after."""

    run: Run
    """Run folder."""
    refresh: float = 2.0
    """Seconds between two looks."""
    once: bool = False
    """Print one look and exit."""
    svg: Path | None = None
    """Write one look as a picture and exit."""


@dataclass(frozen=True)
class Export:
    """Write a policy as ONNX: observation in, action in the environment's own range out."""

    policy: RunOrPolicy
    """Policy file, or run folder for its best policy."""
    out: OnnxFile
    """File to write."""


@dataclass(frozen=True)
class Envs:
    """List environments that can be trained on, with their sizes."""

    pattern: Word = ""
    """Only ids that contain this."""


@dataclass(frozen=True)
class Compare:
    """Put runs side by side: a table, and their learning curves."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders."""
    out: Path | None = None
    """Draw the learning curves into this file (.png, .svg or .pdf)."""
    terminal: bool = False
    """Draw them in the terminal."""


@dataclass(frozen=True)
class Schemes:
    """List the ways of using a population."""


@dataclass(frozen=True)
class Algorithms:
    """List the base algorithms."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: user errors become one line and exit code 2."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    mujoco.set_mju_user_warning(_WarnOnce())  # pyright: ignore[reportAttributeAccessIssue]
    try:
        sys.exit(_dispatch(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        print(f"p3s: {error}", file=sys.stderr)
        sys.exit(2)


class _WarnOnce:
    """MuJoCo says the same thing for every copy of an environment: once is enough."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, message: str | bytes) -> None:
        text = message.decode() if isinstance(message, bytes) else message
        if text not in self._said:
            self._said.add(text)
            print(f"MuJoCo: {text}", file=sys.stderr)


def _dispatch(arguments: list[str]) -> int:
    while arguments[:1] == ["--import"] and len(arguments) > 1:
        import_module(arguments[1])
        arguments = arguments[2:]
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if command in ("-h", "--help"):
        return _overview()
    if command == "--version":
        print(version("p3s"))
        return 0
    if command == "train":
        return _train(rest)
    if command not in COMMANDS:
        raise unknown("command", command, [*COMMANDS, "train"])
    options, action = COMMANDS[command]
    return action(tyro.cli(options, args=rest, prog=f"p3s {command}"))


def _overview() -> int:
    lines = [("train", "Train a population on an environment.")]
    lines += [(name, options.__doc__ or "") for name, (options, _) in COMMANDS.items()]
    print("usage: p3s COMMAND ...   (p3s COMMAND --help explains each)\n")
    for name, text in lines:
        print(f"  {name:<10} {text}")
    print("\np3s --import MODULE COMMAND ... first imports a module that registers an algorithm.")
    return 0


# ---------------------------------------------------------------------- train and resume


def parse_train(arguments: list[str]) -> tuple[Config, Output]:
    """A training's configuration from its command line.

    It is read twice: for the names, which decide every default, and then with those defaults.
    """
    words = [word for word in arguments if word not in ("-h", "--help")]
    if len(words) < len(arguments) and (not words or words[0].startswith("-")):
        words = ["ENV", *words]
    look = tyro.cli(FirstLook, args=words, prog="p3s train", return_unknown_args=True)[0]
    fields = {} if look.num_learners is None else {"num_learners": look.num_learners}
    default = resolve(look.env, look.scheme, look.algorithm, look.preset, look.delay, **fields)
    options = dataclasses.make_dataclass(
        "Train",
        [
            ("method", Method),
            ("output", Output),
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
    config = dataclasses.replace(default, scheme=parsed.population, options=parsed.run)
    chosen = any(word.startswith("--review-period") for word in arguments)
    if chosen and (problem := config.silent_chief()) is not None:
        raise UserError(problem)
    return config, parsed.output


def _train(arguments: list[str]) -> int:
    config, output = parse_train(arguments)
    devices.prepare()
    if config.env is not None and config.env.note is not None:
        print(config.env.note)
    training = runs.begin(config, output.out, tensorboard=output.tensorboard)
    if (note := config.silent_chief()) is not None:
        print(f"note: {note}")
    print(training.memory_note)
    return _run(training, output.report)


def _resume(options: Resume) -> int:
    if options.steps is not None and options.steps < 1:
        raise UserError(f"steps must be at least 1, not {options.steps}")
    devices.prepare()
    training, notes = runs.reopen(options.run, options.steps)
    for note in notes:
        print(note)
    if training.total_steps >= training.options.steps:
        training.close()
        print(f"the run is complete at {training.total_steps:,} steps: --steps makes it longer")
        return 0
    print(f"resuming at step {training.total_steps:,}")
    return _run(training, options.report)


def _run(training: Training, report: bool) -> int:
    """Train to the end, or to a signal; either way the last state is on disk."""
    assert training.folder is not None
    path, until = training.folder.path, training.options.steps
    print(f"run folder: {path}")
    if not training.collector.exact_resume:
        print("this environment's state cannot be captured: a resume begins new episodes")
    received: list[int] = []

    def request_stop(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        training.stop_requested = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, request_stop)
    try:
        with TrainingProgress(training, until) as progress:
            training.run(until, progress.step)
    except TrainingStopped as error:
        raise TrainingStopped(
            f"{error} (the last checkpoint is kept: p3s resume {path})"
        ) from error
    finally:
        if not received:
            training.close()
    if received:
        training.checkpoint()
        training.close()
        print(f"stopped at step {training.total_steps:,}: p3s resume {path}")
        return 128 + received[0]
    print(f"policy: {path / 'policy.safetensors'}")
    if report:
        print(leave_run_page(path))
    return 0


# ---------------------------------------------------------------------- policies


def _evaluate(options: Evaluate) -> int:
    policy = load(options.policy)
    returns = evaluate(
        policy,
        options.env,
        options.episodes,
        options.seed,
        deterministic=not options.stochastic,
    )
    spread = f" ± {returns.std(ddof=1):,.1f}" if len(returns) > 1 else ""
    print(f"return {returns.mean():,.1f}{spread} over {len(returns)} episodes")
    print(f"lowest {returns.min():,.1f}, highest {returns.max():,.1f}")
    return 0


def _enjoy(options: Enjoy) -> int:
    play(load(options.policy), options.env, options.episodes, options.seed, options.video)
    return 0


def _watch(options: Watch) -> int:
    watch(options.run, options.refresh, options.once, options.svg)
    return 0


def _export(options: Export) -> int:
    export_onnx(load(options.policy), options.out)
    print(f"wrote {options.out}")
    return 0


def _envs(options: Envs) -> int:
    list_environments(options.pattern)
    return 0


def _compare(options: Compare) -> int:
    if not options.runs:
        raise UserError("give the run folders to compare")
    compare(list(options.runs), options.out, options.terminal)
    return 0


def _report(options: ReportOptions) -> int:
    for path in run_report(options):
        print(f"wrote {path}")
    return 0


def _schemes(options: Schemes) -> int:
    load_entry_points()
    for name, scheme in SCHEMES.items():
        print(f"{name:<12} {scheme.__doc__}\n{'':<12} {scheme.paper_name}")
    return 0


def _algorithms(options: Algorithms) -> int:
    load_entry_points()
    for name, algorithm in ALGORITHMS.items():
        print(f"{name:<12} {algorithm.actions:<11} {algorithm.__doc__}")
    return 0


def _theory(options: Theory) -> int:
    run_theory(options)
    return 0


COMMANDS: dict[str, tuple[Any, Any]] = {
    "resume": (Resume, _resume),
    "evaluate": (Evaluate, _evaluate),
    "enjoy": (Enjoy, _enjoy),
    "watch": (Watch, _watch),
    "export": (Export, _export),
    "envs": (Envs, _envs),
    "compare": (Compare, _compare),
    "report": (ReportOptions, _report),
    "schemes": (Schemes, _schemes),
    "algorithms": (Algorithms, _algorithms),
    "theory": (Theory, _theory),
    "study": (StudyCommand, run_study_command),
}
"""Command: its options, and what to do with them."""
