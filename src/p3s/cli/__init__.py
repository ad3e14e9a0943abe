"""The command `p3s`: one module per command, imported when it is asked for.

Options are made from the fields of each module's `Options`, help texts from their docstrings.
`p3s train` builds its options from the names on its command line, so it parses them itself, and
`p3s tune` takes the same ones.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import traceback
from importlib.metadata import version

from p3s.cli.output import lasting, to_nowhere
from p3s.errors import ForeignModules, UserError, printable, unknown

COMMANDS = {
    "train": "Train a population on an environment.",
    "tune": "Search hyper-parameters by trials.",
    "resume": "Continue a run from its last checkpoint, bit for bit.",
    "evaluate": "Play episodes with a trained policy, without noise unless told otherwise.",
    "enjoy": "Watch a trained policy play, or film it.",
    "watch": "Follow a run in the terminal, during training or afterwards.",
    "dashboard": "Follow trainings and studies on a local web page.",
    "push": "Share the policy of a run on the Hugging Face Hub.",
    "export": "Write a policy as ONNX: observation in, action in the environment's range out.",
    "replay": "Write the transitions that a run remembers as a file.",
    "config": "Write the configuration of a run as a file for p3s train --config.",
    "doctor": "Say what is installed and what works here, to paste into a bug report.",
    "envs": "List environments that can be trained on, with their sizes.",
    "presets": "List what p3s train takes for each environment if nothing else is said.",
    "compare": "Put runs side by side: a table, and their learning curves.",
    "report": "Write a report on runs or a study as one web page that needs no network.",
    "schemes": "List the ways of using a population.",
    "algorithms": "List the base algorithms.",
    "theory": "Check Theorem 1 on random finite processes, and draw what it says.",
    "study": "Run, show and export grids of runs, among them the paper's.",
}

FIRST = (
    ("p3s train CartPole-v1 --out runs/first", "train; Ctrl-C stops, p3s resume goes on"),
    ("p3s watch runs/first", "look at it, meanwhile or afterwards"),
    ("p3s evaluate runs/first", "play ten episodes with the best policy"),
)
"""Commands to begin with."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user error is one line and exit code 2, with --debug its traceback too."""
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # no letter is worth a run
    try:
        sys.exit(_dispatch([word for word in words if word != "--debug"]))
    except UserError as error:
        if "--debug" in words:
            traceback.print_exc()
        told = error.with_command(words) if isinstance(error, ForeignModules) else str(error)
        print(f"p3s: {printable(told)}", file=sys.stderr)
        sys.exit(2)
    except RecursionError:
        print("p3s: a file is nested too deeply", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # p3s ... | head
        to_nowhere(sys.stdout)
        sys.exit(1)
    except KeyboardInterrupt:
        with contextlib.suppress(BrokenPipeError):  # who read it may have been interrupted too
            print("p3s: interrupted", file=sys.stderr, flush=True)
        sys.exit(130)
    except MemoryError:
        print("p3s: there is not enough memory for this", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder without write permission, ...
        print(f"p3s: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)


def _dispatch(arguments: list[str]) -> int:
    while arguments[:1] == ["--import"] and len(arguments) > 1:
        from p3s.plugins.loading import import_module

        import_module(arguments[1])
        arguments = arguments[2:]
    if arguments[:1] == ["--trust"]:
        from p3s.runs.trust import trusting

        with trusting():
            return _dispatch(arguments[1:])
    if not arguments:
        return _first_commands()
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help"):
        return _overview()
    if name == "--version":
        print(version("p3s"))
        return 0
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    from p3s.envs.mujoco_setup import draw_without_screen

    draw_without_screen()
    if name == "train":
        from p3s.cli import help as own_help

        if not rest:
            own_help.say_what_there_is()
        elif "--help-all" in rest:
            rest = ["--help" if word == "--help-all" else word for word in rest]
        elif "--help" in rest or "-h" in rest:
            return own_help.short_help(rest)
    if name in ("train", "tune", "resume") and rest:
        from p3s.cli.early import say_first

        say_first(rest)
    command = importlib.import_module(f"p3s.cli.{name}")
    if name in ("train", "tune"):
        with lasting():
            return command.run(rest)
    import tyro

    description = COMMANDS[name]
    options = tyro.cli(command.Options, args=rest, prog=f"p3s {name}", description=description)
    with lasting() if name in ("resume", "study") else contextlib.nullcontext():
        return command.run(options)


def _first_commands() -> int:
    print("p3s trains populations of learners on any Gymnasium environment. To begin with:\n")
    for command, text in FIRST:
        print(f"  {command:<44} {text}")
    print(f"\np3s --help lists all {len(COMMANDS)} commands.")
    print("p3s train alone says what is installed to train on.")
    return 0


def _overview() -> int:
    print("usage: p3s COMMAND ...   (p3s COMMAND --help explains each)\n")
    for name, text in COMMANDS.items():
        print(f"  {name:<10} {text}")
    print("\np3s --import MODULE COMMAND ... first imports a module that registers an algorithm.")
    print("p3s --trust COMMAND ... trusts the files it opens: they may import and unpickle.")
    print("--debug, anywhere, shows the traceback of an error.")
    return 0
