"""The whole run, atomically, to the bit.

A checkpoint is a folder `step-<total steps>` with

    state.safetensors   every array but the replay
    environments.bin    states of the environment copies (pickled: private to the run)
    replay-<k>.bin      the filled rows of the replay, in segments
    meta.json           counters, and size and checksum of every file above

It is written under a temporary name, brought to disk, and renamed. Segments of the replay that
have not changed since the checkpoint before are hard links to it, so that a checkpoint costs as
much as was learned since, not as much as is remembered.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save

from p3s.errors import UserError
from p3s.experience.replay import Replay

KEPT = 2
SEGMENT_ROWS = 1 << 14


class Snapshot(NamedTuple):
    """Everything of a run but the replay's rows."""

    arrays: dict[str, np.ndarray]
    environments: list[bytes]
    counters: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self.folder, self._kept = folder, kept
        self._last: tuple[Path, dict[str, Any]] | None = None

    def write(self, step: int, snapshot: Snapshot, replay: Replay) -> None:
        """Write a checkpoint and remove all but the last ones up to it.

        Those of later steps are of a history that was left: damaged, or of another population.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{step:012d}"
        temporary = self.folder / f".tmp-{final.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        files = {
            "state.safetensors": _write(
                temporary / "state.safetensors", save(_contiguous(snapshot.arrays))
            ),
            "environments.bin": _write(
                temporary / "environments.bin", pickle.dumps(snapshot.environments)
            ),
            **self._write_replay(temporary, replay),
        }
        meta = {
            "counters": snapshot.counters,
            "replay": {"num_added": replay.num_added, "capacity": replay.capacity},
            "files": files,
        }
        _write(temporary / "meta.json", json.dumps(meta).encode())
        _sync_folder(temporary)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        _sync_folder(self.folder)
        self._last = (final, meta)
        complete = self._complete()
        end = complete.index(final) + 1
        for other in complete[: max(0, end - self._kept)] + complete[end:]:
            shutil.rmtree(other, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Remove what a process that was killed had not finished writing."""
        for leftover in self.folder.glob(".tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _write_replay(self, folder: Path, replay: Replay) -> dict[str, Any]:
        files = {}
        for start in range(0, replay.size, SEGMENT_ROWS):
            name = f"replay-{start // SEGMENT_ROWS:05d}.bin"
            end = min(start + SEGMENT_ROWS, replay.size)
            if self._last is not None and _unchanged(self._last[1], replay, start, end):
                with suppress(OSError):  # not every file system has hard links
                    os.link(self._last[0] / name, folder / name)
                    files[name] = self._last[1]["files"][name]
                    continue
            files[name] = _write(folder / name, replay.rows[start:end])
        return files

    def _complete(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

    def read(self, replay: Replay) -> tuple[Snapshot | None, list[str]]:
        """The newest intact checkpoint, its rows put into `replay`; and what to tell the user.

        None if there is no checkpoint at all; UserError if there are some but none is intact.
        """
        notes: list[str] = []
        folders = self._complete()
        for folder in reversed(folders):
            damage = _damage(folder)
            if damage is None:
                return self._read(folder, replay), notes
            notes.append(f"checkpoint {folder.name} is damaged ({damage}): using the one before")
        if folders:
            raise UserError(f"no checkpoint in {self.folder} is intact: {'; '.join(notes)}")
        return None, notes

    def _read(self, folder: Path, replay: Replay) -> Snapshot:
        meta = json.loads((folder / "meta.json").read_text())
        if meta["replay"]["capacity"] != replay.capacity:
            raise UserError(f"{folder} holds a replay of another size")
        replay.num_added = meta["replay"]["num_added"]
        for start in range(0, replay.size, SEGMENT_ROWS):
            rows = replay.rows[start : min(start + SEGMENT_ROWS, replay.size)]
            with (folder / f"replay-{start // SEGMENT_ROWS:05d}.bin").open("rb") as file:
                file.readinto(rows.data)
        self._last = (folder, meta)
        return Snapshot(
            arrays=load_file(folder / "state.safetensors"),
            environments=pickle.loads((folder / "environments.bin").read_bytes()),
            counters=meta["counters"],
        )


def _contiguous(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _unchanged(last: dict[str, Any], replay: Replay, start: int, end: int) -> bool:
    """Whether rows start:end are the same as when the last checkpoint was written."""
    before = last["replay"]["num_added"]
    if before < end:
        return False
    # Rows written since then are before, ..., num_added - 1, modulo the capacity.
    written = replay.num_added - before
    first = before % replay.capacity
    touched_until = first + written
    wraps_into = touched_until - replay.capacity
    touched = written > 0 and ((first < end and touched_until > start) or wraps_into > start)
    return not touched


def _write(path: Path, data: Any) -> dict[str, int]:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return {"bytes": file.tell(), "crc32": zlib.crc32(data)}


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        files, _, _ = meta["files"], meta["counters"], meta["replay"]["num_added"]
        if "state.safetensors" not in files:
            return "meta.json names no state"
    except (OSError, ValueError, KeyError, TypeError):
        return "meta.json cannot be read"
    for name, expected in files.items():
        try:
            data = (folder / name).read_bytes()
        except OSError:
            return f"{name} is missing"
        if len(data) != expected["bytes"] or zlib.crc32(data) != expected["crc32"]:
            return f"{name} is not what was written"
    return None
