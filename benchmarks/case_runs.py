"""Many trainings as lines of a file: only what is missing runs, so a script may be stopped.

A case is a dict of names and numbers. A script of cases runs itself with `--one CASE` for each, and
prints its result as the last line: a JSON object with the case's own keys in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The finished runs; a line that a killed process left unfinished is passed over."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: passed over a broken line", file=sys.stderr)
    return rows


def missing(cases: list[Row], rows: list[Row]) -> list[Row]:
    """The cases that no row is of."""
    return [case for case in cases if not any(case.items() <= row.items() for row in rows)]


def run_missing(script: str, cases: list[Row], path: Path, lanes: int = 1) -> None:
    """Run what is not finished yet, in their order, each lane on cores of its own.

    Times mean something with one lane only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    left, lock = SimpleQueue[Row](), threading.Lock()
    for case in missing(cases, read(path)):
        left.put(case)
    cores = sorted(os.sched_getaffinity(0))

    def work(lane: int) -> None:
        own = cores[lane::lanes] or cores
        while not left.empty():
            case = left.get()
            words = [sys.executable, script, "--one", json.dumps(case)]
            done = subprocess.run(
                words, stdout=subprocess.PIPE, text=True, check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, own),
            )  # fmt: skip
            with lock:
                _keep(case, done, path)

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(work, range(lanes)))


def _keep(case: Row, done: subprocess.CompletedProcess[str], path: Path) -> None:
    """Append what a run printed, and say how it went."""
    if done.returncode:
        print(f"failed: {case}", file=sys.stderr, flush=True)
        return
    line = done.stdout.splitlines()[-1]
    with path.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    row = json.loads(line)
    print(f"{case}: {np.mean(row['returns']):.0f}, {row['seconds']:.0f} s", flush=True)


def returns_text(rows: Sequence[Row]) -> str:
    """Mean over seeds of the mean return, with the lowest and the highest seed.

    No interval: a few seeds on one environment carry none (docs/report.md).
    """
    means = seed_means(rows)
    if not len(means):
        return ""
    if len(means) < 2:
        return f"{means[0]:,.0f}"
    return f"{means.mean():,.0f} ({means.min():,.0f} to {means.max():,.0f})"


def seed_means(rows: Sequence[Row]) -> np.ndarray:
    """The mean return of each seed."""
    return np.array([np.mean(row["returns"]) for row in rows])
