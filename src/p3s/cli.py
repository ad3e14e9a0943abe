"""The command `p3s`: options are made from dataclass fields, help texts from their docstrings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro

from p3s.algorithms import ALGORITHMS
from p3s.compare import compare
from p3s.enjoy import play
from p3s.envs.listing import list_environments
from p3s.envs.mujoco_setup import draw_without_screen
from p3s.errors import UserError, unknown
from p3s.export import export_onnx
from p3s.extensions import import_module, load_entry_points
from p3s.population import evaluate, load
from p3s.report.command import ReportOptions, run_report
from p3s.schemes import SCHEMES
from p3s.study.command import StudyCommand, run_study_command
from p3s.theory.command import Theory, run_theory
from p3s.training_command import Resume, Run, run_resume, run_train
from p3s.watch import watch

RunOrPolicy = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN|POLICY")]
OnnxFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.onnx")]
Word = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")]


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
    draw_without_screen()
    try:
        sys.exit(_dispatch(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        print(f"p3s: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("p3s: interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that may not be written to, ...
        print(f"p3s: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)


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
        return run_train(rest)
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
    "resume": (Resume, run_resume),
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
