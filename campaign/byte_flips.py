"""Byte flips: one bit of one file of a run folder changes, in every file, at sampled places.

Whatever is opened then either says so, or is what was written: an older checkpoint, the same state,
the same rows, the same actions.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers import assert_same_state, small_config, state_of

from campaign import Result
from p3s.errors import UserError
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.records import read_config, read_rows
from p3s.runs.rows import read_intact_rows

FLIPS_PER_FILE = 200
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def run(short: bool) -> Result:
    """Flip bits in a run of two checkpoints."""
    rng, notes, tried, noticed = random.Random(0), list[str](), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        states = trained(path)
        expected = seen(path)
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            content = file.read_bytes()
            for _ in range(min(3 if short else FLIPS_PER_FILE, len(content))):
                tried += 1
                place, bit = rng.randrange(len(content)), rng.randrange(8)
                changed = bytearray(content)
                changed[place] ^= 1 << bit
                file.write_bytes(changed)
                name = str(file.relative_to(path))
                try:
                    noticed += open_all(path, name, expected, states)
                except Exception as error:
                    what = f"{type(error).__name__}: {str(error)[:200]}"
                    notes.append(f"{name}, bit {bit} of byte {place}: {what}")
                file.write_bytes(content)
    count = len(notes)
    notes.append(f"{noticed} were noticed, {tried - noticed} changed nothing that is read")
    return Result("bytes flipped", tried, count, notes)


def trained(path: Path) -> dict[int, Any]:
    """Train a run; the state at each of its checkpoints."""
    config = small_config(steps=200, checkpoint_period=100, evaluation_period=100)
    training, states = opening.begin(config, path), dict[int, Any]()

    def remember(now: Any) -> None:
        if now.total_steps % 100 == 0:
            states[now.total_steps] = state_of(now)

    training.run(200, remember)
    training.close()
    (path / ".lock").unlink()
    return states


def seen(path: Path) -> dict[str, Any]:
    """All that can be read of a run, by file; for what is damaged, the complaint."""
    names = [file.name for file in path.iterdir() if file.suffix in (".safetensors", ".jsonl")]
    return {name: read(path, name) for name in [*names, "config.json"]}


def read(path: Path, name: str) -> Any:
    """One file of a run as it is used, or the complaint."""
    try:
        if name == "config.json":
            return read_config(path)
        if name.endswith(".jsonl"):
            return read_rows(path / name)
        policy = Policy.load(path / name)
        return policy.predict(OBSERVATIONS)[0].tolist(), policy.about
    except UserError as error:
        return error


def open_all(path: Path, name: str, expected: dict[str, Any], states: dict[int, Any]) -> bool:
    """Read a file; whether the damage was noticed. Raises if something else was read."""
    if name not in expected:
        return resumed_otherwise(path, states)
    if name.endswith(".jsonl"):
        rows, note = read_intact_rows(path, name.removesuffix(".jsonl"))
        count = len(rows) if note is not None else len(expected[name])
        assert matches(rows, expected[name][:count]), f"the report of {name} has other rows"
    found = read(path, name)
    noticed = isinstance(found, UserError)
    assert noticed or matches(found, expected[name]), f"{name} is not what was written"
    return noticed


def matches(found: Any, expected: Any) -> bool:
    """Whether all values are as expected; a checksum whose name has changed is one too many."""
    if isinstance(expected, dict) and isinstance(found, dict):
        extra = [found[name] for name in found if name not in expected]
        same = all(name in found and matches(found[name], expected[name]) for name in expected)
        return same and len(extra) <= 1 and all(isinstance(value, int) for value in extra)
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(matches, found, expected))
    return found == expected


def resumed_otherwise(path: Path, states: dict[int, Any]) -> bool:
    """Whether a resume says that a checkpoint is damaged; raises if its state is another."""
    copy = path.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    training, notes = opening.reopen(copy)
    training.close()
    assert training.total_steps == 200 or notes, "an older checkpoint was used without a word"
    assert_same_state(state_of(training), states[training.total_steps])
    return bool(notes)
