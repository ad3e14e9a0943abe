"""The command `p3s` in processes that start at once: forks of one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

LONGEST = 600.0
"""Seconds after which a process counts as stuck."""


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # Importing starts no threads, so a fork is safe; and it takes longer than all the rest.
    commands = ("train", "resume", "study", "tune", "dashboard")
    context.set_forkserver_preload([f"p3s.cli.{command}" for command in commands])
    return context


def _be_command(arguments: list[str], log: str) -> None:
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from p3s.cli import main

    sys.argv = ["p3s", *arguments]
    main(arguments)


class Command:
    """`p3s` with these arguments, in a process of its own; what it prints goes to a file."""

    def __init__(self, arguments: Sequence[object], log: Path) -> None:
        self._log = log
        words = [str(argument) for argument in arguments]
        self._process = _context().Process(target=_be_command, args=(words, str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def wait(self, seconds: float = LONGEST) -> int | None:
        """Its exit code; None if it is alive after this many seconds."""
        self._process.join(seconds)
        return self._process.exitcode

    def end(self) -> int | None:
        """Wait for its exit code; None if it is stuck, and then it is killed."""
        code = self.wait()
        if code is None:
            self.kill()
        return code

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    def printed(self) -> str:
        """All that it has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_line(self) -> str:
        """The last thing that it printed."""
        lines = self.printed().strip().splitlines()
        return lines[-1] if lines else "nothing printed"


def children(pid: int) -> list[int]:
    """The live processes that one has started, in any of its threads."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
        found = sorted(int(child) for task in tasks for child in task.read_text().split())
        return [child for child in found if not _is_zombie(child)]
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and nobody has taken note of it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
