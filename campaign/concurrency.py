"""Concurrency: several processes at one run folder, with locks that work and with others.

Two trainings into one folder: one trains, the other is told so in one line. A resume of a run in
progress: the same. Commands that read while a run writes: they show the run as it was a moment ago.
Locks that do not work: the process that came first says so and writes no more. Two studies on one
folder without working locks: one of them runs, the other says why it does not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.helpers import SMALL, record, small_config

import p3s
from campaign import Result
from p3s.cli import main
from p3s.errors import TrainingStopped, UserError
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.records import read_rows

STEPS = 400
STUDIES = 3
"""Meetings of two studies, which take half a minute each."""
Attempt = Callable[[Path, Any], tuple[int, list[str]]]
"""Lets processes meet at a path; how many did, and what went wrong."""
OPTIONS = (
    "--preset", "paper", "--hidden-sizes", "16", "--batch-size", "8", "--initial-steps", "20",
    "--review-period", "25", "--buffer-size", "1000", "--evaluation-period", "200",
    "--evaluation-episodes", "2", "--metrics-period", "100", "--checkpoint-period", "50",
    "--steps", str(STEPS), "--no-report",
)  # fmt: skip


def run(short: bool) -> Result:
    """Try every way of meeting at a folder."""
    notes, tried = list[str](), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder / "whole")
        expected = record(folder / "whole")
        for number in range(1 if short else 10):
            attempts: list[Attempt] = [reading, broken_locks]
            if not short:
                attempts += [two_trainings, two_studies][: 2 if number < STUDIES else 1]
            for attempt in attempts:
                tried_here, problems = attempt(folder / f"{attempt.__name__}-{number}", expected)
                tried += tried_here
                notes += [f"{attempt.__name__}: {problem}" for problem in problems]
    return Result("meetings of processes", tried, len(notes), notes)


def config() -> Any:
    """A run with many checkpoints."""
    return small_config(steps=STEPS, checkpoint_period=50)


def train(path: Path) -> None:
    """A run to its end."""
    training = opening.begin(config(), path)
    try:
        training.run(STEPS)
    finally:
        training.close()


def two_trainings(path: Path, expected: Any) -> tuple[int, list[str]]:
    """Two processes train into one folder at the same time, and one resumes it meanwhile."""
    start = [sys.executable, "-m", "p3s"]
    orders = [[*start, "train", "InvertedPendulum-v5", *OPTIONS, "--out", str(path)]] * 2
    orders.append([*start, "resume", str(path), "--no-report"])
    processes = [
        subprocess.Popen(order, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for order in orders
    ]
    ended = [(process.communicate()[1], process.returncode) for process in processes]
    problems = [
        f"exit code {code}: {errors[:200]}"
        for errors, code in ended
        if code not in (0, 2) or (code == 2 and errors.strip().count("\n"))
    ]
    if [code for _, code in ended[:2]].count(0) != 1:
        problems.append("not exactly one of the two trained")
    elif record(path) != expected:
        problems.append("the run that was left is another")
    return 3, problems


def reading(path: Path, expected: Any) -> tuple[int, list[str]]:
    """Read in every way, again and again, while a run writes."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            train(path)
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    tried, problems = 0, list[str]()
    while writer.is_alive() or tried == 0:
        for name, look in LOOKS.items():
            tried += 1
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    look(path)
            except UserError as error:
                if not any(word in str(error) for word in NOT_YET):
                    problems.append(f"{name}: {error}")
            except Exception as error:
                problems.append(f"{name}: {type(error).__name__}: {error}")
    writer.join()
    problems += [f"the run: {error}" for error in failed]
    if not failed and record(path) != expected:
        problems.append("the run was disturbed")
    return tried, problems


def command(*words: str) -> None:
    """A command whose error is raised again."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            main(list(words))
        except SystemExit as ended:
            if ended.code:
                raise UserError(errors.getvalue()) from ended


LOOKS = {
    "rows": lambda path: read_rows(path / "metrics.jsonl"),
    "policy": lambda path: Policy.load(path / "policy.safetensors"),
    "load": lambda path: p3s.Population.load(path),
    "watch": lambda path: command("watch", str(path), "--once"),
    "compare": lambda path: command("compare", str(path), str(path)),
    "report": lambda path: command("report", str(path), "--out", str(path.parent / "page.html")),
    "resume": lambda path: opening.reopen(path)[0].close(),
}
NOT_YET = (
    "does not exist", "holds no runs", "it has no config.json", "no evaluation", "no checkpoint",
    "no policy file", "is in use",
)  # fmt: skip
"""What may be said of a run that has only begun, or that is trained by another."""


def broken_locks(path: Path, expected: Any) -> tuple[int, list[str]]:
    """A second process resumes a run in progress, on a file system whose locks always succeed."""
    with patch("p3s.runs.locks._lock", lambda descriptor, shared: True):
        first = opening.begin(config(), path)
        first.run(STEPS, callback=lambda now: now.total_steps < 170)
        second, _ = opening.reopen(path)
        problems = ["the first process wrote on"]
        try:
            first.run(STEPS)
        except TrainingStopped as error:
            problems = [] if "locks do not work there" in str(error) else [str(error)]
        first.close()
        second.run(STEPS)
        second.close()
    if record(path) != expected:
        problems.append("the run that was left is another")
    return 1, problems


def two_studies(path: Path, expected: Any) -> tuple[int, list[str]]:
    """Two processes run one study at the same time, where locks always succeed."""
    path.mkdir()
    (path / "sitecustomize.py").write_text("import fcntl\nfcntl.flock = lambda *locked: None\n")
    fields = {**SMALL, "checkpoint_period": 50}
    del fields["preset"]
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    text = f"steps = {STEPS}\nseeds = 3\nenvironments = ['InvertedPendulum-v5']\n[fields]\n"
    (path / "mine.toml").write_text(text + "\n".join(lines) + "\n[[methods]]\nscheme = 'p3s'\n")
    order = [sys.executable, "-m", "p3s", "study", "run", str(path / "mine.toml"), "--preset"]
    order += ["paper", "--out", str(path / "study")]
    search = os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])
    without_locks = {**os.environ, "PYTHONPATH": search}
    studies = [
        subprocess.Popen(
            order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=without_locks
        )
        for _ in range(2)
    ]
    printed = [process.communicate()[0] for process in studies]
    problems = [f"a traceback: {text[-300:]}" for text in printed if "Traceback" in text]
    codes = [process.returncode for process in studies]
    refused = [text for text, code in zip(printed, codes, strict=True) if code == 2]
    # The second may come when the first is done.
    if 0 not in codes or not all("locks do not work there" in text for text in refused):
        problems.append(f"exit codes {codes}: {[text[-200:] for text in printed]}")
    again = subprocess.run(
        [*order[:5], str(path / "study"), "--retry-failed"], capture_output=True, text=True
    )
    if again.returncode != 0:
        problems.append(f"it cannot be completed: {again.stdout[-300:]}{again.stderr[-300:]}")
    whole = {run.name: record(run) for run in sorted((path / "study" / "runs").iterdir())}
    alone = path / "alone"
    subprocess.run([*order[:-1], str(alone)], capture_output=True, check=False)
    if whole != {run.name: record(run) for run in sorted((alone / "runs").iterdir())}:
        problems.append("its runs are others than those of a study alone")
    return 2, problems
