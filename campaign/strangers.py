"""Files from strangers: whatever they hold, a command ends with one line or with what it shows.

Policies, configurations, checkpoints, records, transitions, studies and their folders, and journals
of trials are changed byte by byte and value by value, and addresses of clusters made up. No command
may end in a traceback, execute what a file names, write outside the folders that it was given, put
a name into a page as markup, or take memory out of proportion.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.helpers import small_config

from campaign import Result
from campaign.mutations import (
    SCRIPT,
    changed_bytes,
    changed_description,
    changed_header,
    changed_json,
)
from p3s.cli import main
from p3s.learning import devices
from p3s.report.failures import Failure, write_failure
from p3s.report.references import FILE as REFERENCES
from p3s.report.references import Reference, references_text
from p3s.runs import opening
from p3s.runs.replays import export_replay
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.folder import StudyFolder

MEMORY = 1 << 30
"""Bytes by which a small file may not make the process grow."""
STUDY = """
steps = 500
seeds = [3, 5]
environments = ["Pendulum-v1", {id = "Ant-v5", delay = 20}]
fields = {batch_size = 8}
[[methods]]
label = "P3S"
num_learners = 2
[methods.grid]
d_min = [0.02, 0.05]
[[methods]]
scheme = "single"
algorithm = "sac"
[paper."P3S d_min=0.05"]
"Delayed Ant-v5" = 7
"""
TUNING = (
    "Pendulum-v1", "--algorithm", "td3", "--steps", "500", "--trials", "2", "--no-calibrate",
    "--search", "learning_rate", "--study-name", "mine",
)  # fmt: skip
Change = Callable[[Path, random.Random], list[list[str]]]
"""Changes a file of a folder; the commands that then open it."""


def run(short: bool) -> Result:
    """Change files and open them."""
    notes, tried = list[str](), 0
    with tempfile.TemporaryDirectory() as name, in_folder(Path(name)), stubs():
        folder = Path(name)
        source = folder / "source"
        prepare(source)
        for number in range(8 if short else 300):
            for change in CHANGES:
                work = folder / "work"
                shutil.rmtree(work, ignore_errors=True)
                shutil.copytree(source, work)
                rng = random.Random(f"{number} {change.__name__}")
                for command in change(work, rng)[: 1 if short else None]:
                    tried += 1
                    problem = problem_of(command, folder)
                    if problem is not None:
                        notes.append(f"{change.__name__} {number}, p3s {command[0]}: {problem}")
            if len(notes) > 50:
                break
    lost = len(notes)
    return Result("files fuzzed", tried, lost, notes)


def problem_of(command: list[str], folder: Path) -> str | None:
    """What a command did that it must not do, or None."""
    output, errors = io.StringIO(), io.StringIO()
    before, outside = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, set(os.listdir(folder))
    code: Any = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(command)
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException as error:
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
            return f"{type(error).__name__}: {str(error)[:120]} at {where}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    page = folder / "work" / "page.html"
    if grown * 1024 > MEMORY:
        return f"it took {grown >> 10} MB"
    if code not in (0, 1, 2) or (code == 2 and errors.getvalue().strip().count("\n") > 0):
        return f"exit code {code}: {errors.getvalue()[:200]!r}"
    if "evil" in sys.modules or set(os.listdir(folder)) != outside:
        return "it executed or wrote what it was told to"
    if page.exists() and SCRIPT in page.read_text():
        return "a name became markup"
    return None


def prepare(source: Path) -> None:
    """A small run, a study's file, and a study's folder."""
    devices.prepare()
    config = small_config("Pendulum-v1", steps=200, checkpoint_period=100, evaluation_period=100)
    training = opening.begin(config, source / "run")
    training.run(200)
    training.close()
    export_replay(source / "run", source / "run" / "replay.npz")
    file = source / "study.toml"
    file.write_text(STUDY)
    definition = find_study(str(file))
    cells, kept = make_cells(definition), StudyFolder(source / "kept")
    kept.write(definition, cells)
    shutil.copytree(source / "run", kept.run(cells[0]))
    write_failure(kept.failure(cells[1]), Failure("it broke", "a traceback", 7))
    known = {cells[0].env.label: Reference({"id": "Pendulum-v1"}, {"random": [-1200.0, -900.0]})}
    (kept.path / REFERENCES).write_text(references_text(known))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["tune", *TUNING, "--out", str(source / "tuned")])
    assert (source / "tuned" / "best.toml").exists()
    Path("evil.py").write_text("import os\nos.mkdir('executed')\n")


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Let the folder be the current one, where modules are looked for."""
    before, path = Path.cwd(), [*sys.path]
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextlib.contextmanager
def stubs() -> Iterator[None]:
    """Leave out what takes long: training on, and whole episodes."""

    def opened(training: Any, report: bool) -> int:
        training.close()
        return 0

    def played(policy: Any, *options: Any, **others: Any) -> np.ndarray:
        env = policy.make_env()
        policy.predict(env.reset(seed=0)[0])
        env.close()
        return np.zeros(2)

    def asked(workers: Any) -> int:
        claim = workers._tuning.claim(workers._goal.trials, workers._goal.most)
        if claim is not None:
            os.close(claim.lock)
            workers._tuning.study.tell(claim.number, float(claim.number))
        return 0

    def filmed(policy: Any, env: Any, seed: int, film: list[Any]) -> tuple[float, int]:
        env.step(policy.act(env.reset(seed=seed)[0]))
        film.append(env.render())
        return 0.0, 1

    with (
        patch("p3s.cli.resume.train", opened),
        patch("p3s.cli.evaluate.evaluate", played),
        patch("p3s.cli.enjoy.play_episode", filmed),
        patch("p3s.sharing.bundle.evaluate", played),
        patch("p3s.cli.tune.Workers.run", asked),
    ):
        yield


# ---------------------------------------------------------------------- changes


def policy(work: Path, rng: random.Random) -> list[list[str]]:
    file = work / "run" / "policy.safetensors"
    change = rng.choice((changed_bytes, changed_header, changed_description, changed_description))
    file.write_bytes(change(file.read_bytes(), rng))
    return [
        ["evaluate", str(file), "--episodes", "2"],
        ["export", str(file), str(work / "policy.onnx")],
        [*sharing(work), "--last"],
        ["enjoy", str(file), "--video", str(work / "film.gif")],
    ]


def config(work: Path, rng: random.Random) -> list[list[str]]:
    file = work / "run" / "config.json"
    if rng.random() < 0.2:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        record = json.loads(file.read_bytes())
        del record["crc32"]
        file.write_text(json.dumps(changed_json(record, rng)))
    run = str(work / "run")
    return [["resume", run], *reading(work), ["evaluate", run], sharing(work)]


def checkpoint(work: Path, rng: random.Random) -> list[list[str]]:
    for folder in (work / "run" / "checkpoints").iterdir():
        meta = json.loads((folder / "meta.json").read_bytes())
        del meta["crc32"]
        if rng.random() < 0.5:
            meta = changed_json(meta, rng)
        else:
            file = folder / "state.safetensors"
            content = rng.choice((changed_bytes, changed_header))(file.read_bytes(), rng)
            file.write_bytes(content)
            written = {"bytes": len(content), "crc32": zlib.crc32(content)}
            meta["files"]["state.safetensors"] = written
        (folder / "meta.json").write_text(json.dumps(meta))
    return [["resume", str(work / "run")]]


def records(work: Path, rng: random.Random) -> list[list[str]]:
    name = rng.choice(("evaluations", "evaluations", "lineage", "metrics"))
    file = work / "run" / f"{name}.jsonl"
    if rng.random() < 0.2:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        rows = [json.loads(line) for line in file.read_bytes().splitlines()]
        for row in rows:
            del row["crc32"]
        rows = changed_json(rows, rng)
        rows = rows if isinstance(rows, list) else [rows]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return reading(work)


def sharing(work: Path) -> list[str]:
    """The command that writes a card."""
    run, shared = str(work / "run"), str(work / "shared")
    return ["push", run, "somebody/run", "--dry-run", shared, "--no-video"]


def reading(work: Path) -> list[list[str]]:
    """The commands that show a run."""
    run, page = str(work / "run"), str(work / "page.html")
    return [
        ["report", run, "--out", page],
        ["watch", run, "--once"],
        ["compare", run, run, "--terminal"],
        ["report", run, run, "--out", page],
    ]


def transitions(work: Path, rng: random.Random) -> list[list[str]]:
    file = work / "run" / "replay.npz"
    if rng.random() < 0.4:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        with np.load(file) as opened:
            arrays = dict(opened)
        name = rng.choice(sorted(arrays))
        changed = rng.choice(CHANGES_OF_ARRAYS)(arrays.pop(name))
        np.savez(file, **arrays, **{rng.choice((name, name, name, f"{name}x")): changed})
    share = rng.choice(("0", "0.5"))
    words = ["--data", str(file), "--data-share", share, "--hidden-sizes", "8"]
    return [["train", "Pendulum-v1", *words, "--out", str(work / "new")]]


def study(work: Path, rng: random.Random) -> list[list[str]]:
    file = work / "study.toml"
    text = file.read_text()
    if rng.random() < 0.5:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        words = [json.dumps(value) for value in VALUES_IN_TOML]
        old = rng.choice(('"Pendulum-v1"', "500", "[3, 5]", "20", "8", '"P3S"', "2", '"sac"', "7"))
        file.write_text(text.replace(old, rng.choice(words), 1))
    return [["study", "show", str(file), "--no-calibrate"]]


def study_folder(work: Path, rng: random.Random) -> list[list[str]]:
    kept = work / "kept"
    files = [kept / "cells.json", kept / REFERENCES, *(kept / "failures").iterdir()]
    file = rng.choice(files)
    if rng.random() < 0.3:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        file.write_text(json.dumps(changed_json(json.loads(file.read_bytes()), rng)))
    return [
        ["study", "status", str(kept)],
        ["report", str(kept), "--out", str(work / "page.html")],
        ["compare", str(kept), "--terminal"],
        ["study", "export", str(kept), "--out", str(work / "table.csv")],
    ]


def journal(work: Path, rng: random.Random) -> list[list[str]]:
    file = work / "tuned" / "journal.log"
    if rng.random() < 0.3:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    else:
        rows = [json.loads(line) for line in file.read_bytes().splitlines()]
        rows = changed_json(rows, rng)
        rows = rows if isinstance(rows, list) else [rows]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # Its folder is said in it, so it is used where it was made.
    kept = work.parent / "source" / "tuned"
    return [["tune", *TUNING, "--storage", str(file), "--out", str(kept)]]


def ray_address(work: Path, rng: random.Random) -> list[list[str]]:
    """An address where nobody is; without Ray, its absence."""
    host = rng.choice(("127.0.0.1", "[::1]", "", "[", "::", "127.0.0.1:2", "ray://127.0.0.1", "%"))
    port = rng.choice(("1", "0", "65536", str(10**12), "-1", "x", "", "١", "1\n2", "\x00"))
    run = ["train", "Pendulum-v1", "--shards", "2", "--engine", "ray", "--out", str(work / "new")]
    return [[*run, "--address", f"{host}:{port}"]]


VALUES_IN_TOML = (
    -1, 0, 10**12, 1e300, "", "x", SCRIPT, "../../outside", "evil:Evil", [], [[]], [10**9], True,
)  # fmt: skip
CHANGES_OF_ARRAYS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda array: array[:0], lambda array: array[::2], lambda array: array[None],
    lambda array: array.astype(object), lambda array: array.astype(complex),
    lambda array: array.astype("U4"), lambda array: array.astype(np.int8),
    lambda array: array * np.nan, lambda array: np.full(array.shape, 1e300),
    lambda array: ~(array != 0), lambda array: np.asfortranarray(array),
    lambda array: np.array(1.0),
)  # fmt: skip
CHANGES: tuple[Change, ...] = (
    policy, config, checkpoint, records, transitions, study, study_folder, journal, ray_address,
)  # fmt: skip
