"""Environments that misbehave: each gets its documented treatment under several schemes.

In this process every fault is found at once and named with its learner, or is harmless. A worker
that dies or hangs ends the run with a line that says how; with restarts the run goes on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.helpers import small_config
from tests.helpers_faults import ANSWERS, MakeFault

from campaign import Result
from p3s.errors import TrainingStopped
from p3s.train import Training

STEPS = 400
HARMLESS = ("ends every step", "never ends", "float64 and ints")
STOPS = (
    "raises", "leaks", "changes its action space", "changes its observation space",
    *(kind for kind in ANSWERS if kind not in HARMLESS),
)  # fmt: skip
DEATHS = {
    "SIGSEGV": "killed by SIGSEGV",
    "SIGABRT": "killed by SIGABRT",
    "SIGKILL": "killed by SIGKILL",
    "exits": "exit code 3",
    "hangs": "longer than the limit",
    "leaves a child": "killed by SIGKILL",
}
SCHEMES = ("p3s", "pbt", "cem", "erl", "distributed", "rollout")


def run(short: bool) -> Result:
    """Every fault under every scheme; those of workers under two of them."""
    losses, tried = [], 0
    for scheme in SCHEMES[:1] if short else SCHEMES:
        for kind in (*STOPS, *HARMLESS):
            tried += 1
            losses += here(scheme, kind)
    for scheme in () if short else ("p3s", "rollout"):
        for kind in DEATHS:
            for restarts in (0, 1):
                tried += 1
                losses += in_workers(scheme, kind, restarts)
    return Result("environments misbehaved", tried, len(losses), losses)


def here(scheme: str, kind: str) -> list[str]:
    """What is wrong with the treatment of a fault in this process."""
    said = train(scheme, MakeFault(kind))
    if kind in HARMLESS:
        return [] if said is None else [f"{scheme}, {kind}: stopped by {said!r}"]
    named = said is not None and "of learner" in said
    return [] if named else [f"{scheme}, {kind}: {said!r}"]


def in_workers(scheme: str, kind: str, restarts: int) -> list[str]:
    """What is wrong with the treatment of a worker's end, which happens once."""
    limit = {"env_step_limit": 2.0} if kind == "hangs" else {}
    with tempfile.TemporaryDirectory() as folder:
        make = MakeFault(kind, Path(folder) / "mark")
        said = train(scheme, make, env_workers=1, env_restarts=restarts, **limit)
    if restarts:
        return [] if said is None else [f"{scheme}, {kind}: stopped by {said!r}"]
    named = said is not None and DEATHS[kind] in said
    return [] if named else [f"{scheme}, {kind}, no restarts: {said!r}"]


def train(scheme: str, make: MakeFault, **fields: object) -> str | None:
    """The line that a run ended with; None if it went to its end."""
    config = small_config(None, scheme, evaluation_period=0, **fields)
    training = Training(config, make)
    try:
        training.run(STEPS)
    except TrainingStopped as error:
        return str(error)
    finally:
        training.close()
    return None
