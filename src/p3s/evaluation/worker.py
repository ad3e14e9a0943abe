"""A worker: `python -m p3s.evaluation.worker`, its order and units on stdin, returns on stdout.

It ends when its stdin does: with the process that started it, however that was killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any

from p3s.errors import TrainingStopped
from p3s.evaluation.playing import Player
from p3s.evaluation.workers import read, reply
from p3s.learning import devices


def answer(player: Player | None, unit: bytes) -> tuple[str, Any]:
    """The returns of a unit, or why there are none."""
    try:
        unpickled = pickle.loads(unit)
    except Exception as error:
        return "cannot work", f"{type(error).__name__}: {error}"
    assert player is not None
    try:
        return "returns", player.play(unpickled)
    except TrainingStopped as error:
        return "stopped", str(error)


def main() -> None:
    """Play units until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What an environment prints must not get between the answers.
    os.dup2(2, 1)
    devices.prepare()
    player, problem = None, None
    try:
        sys.path[:] = pickle.loads(read(source))
        order = read(source)
        try:
            player = Player(*pickle.loads(order))
            player.envs.append(player.make())
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        while True:
            unit = read(source)
            kind, value = ("cannot work", problem) if problem else answer(player, unit)
            reply(answers, kind, value)
    except (EOFError, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
