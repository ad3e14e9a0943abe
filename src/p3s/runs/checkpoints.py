"""The whole run, atomically, to the bit.

A checkpoint is a folder `step-<total steps>` with

    state.safetensors   every array of every part but the replay's rows
    replay-<k>.bin      the filled rows of the replay, in segments
    meta.json           the parts' other values, and size and checksum of every file above

It is written under a temporary name, synced to disk, and renamed. An older one of the same step
steps aside first, under a name by which it is still found. Segments of the replay that
have not changed since the checkpoint before are hard links to it, so that a checkpoint costs as
much as was learned since, not as much as is remembered. Environment states that are pickled are
loaded only if this user wrote them, see trust.py.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from p3s.errors import UserError
from p3s.runs import files
from p3s.runs.checksums import parse_checked, with_checksum
from p3s.runs.files import DiskError
from p3s.runs.trust import sign_states, without_foreign_states

if TYPE_CHECKING:
    from p3s.experience.replay import Ring

KEPT = 2
SEGMENT_ROWS = 1 << 14
_UNFINISHED, _REPLACED = ".tmp-", ".old-"
"""Begin the names of checkpoints that are being written, and that a new one of the same step
replaces."""

_STEP = re.compile(r"step-\d+")
USING_BEFORE = ": using the one before"
_FILE_NAME = re.compile(r"[\w-]+\.(safetensors|bin)")
_PIECE = 1 << 20
_TRIES = 20
"""How often checkpoints are looked for again while a run replaces them."""

FORMAT = 3
"""Of checkpoints. 1: p3s 0.1, whose learners had other parts; 2: early p3s 0.2, which evaluated
from other start states."""

Snapshot = dict[str, dict[str, Any]]
"""For each part its values: arrays, or whatever JSON holds."""


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self.folder, self._kept = folder, kept
        self._last: tuple[Path, dict[str, Any]] | None = None

    def write(self, step: int, snapshot: Snapshot, ring: Ring | None) -> None:
        """Write a checkpoint and remove all but the last ones up to it.

        Those of later steps belong to a history that was left: damaged, or another population's.
        """
        files.make_folder(self.folder)
        final = self.folder / f"step-{step:012d}"
        temporary = self.folder / f"{_UNFINISHED}{final.name}"
        try:
            meta = self._write_files(temporary, snapshot, ring)
        except DiskError:
            with suppress(DiskError):  # a full disk needs the room
                files.remove_folder(temporary)
            raise
        if final.exists():
            # It keeps a name until the new one has its own: a kill between loses neither.
            replaced = self.folder / f"{_REPLACED}{final.name}"
            files.remove_folder(replaced)
            files.rename(final, replaced)
        files.rename(temporary, final)
        files.sync(self.folder)
        self._last = (final, meta)
        complete = [folder for folder in self._complete() if not _is_replaced(folder)]
        end = complete.index(final) + 1
        replaced = self.folder.glob(f"{_REPLACED}*")
        for other in [*replaced, *complete[: max(0, end - self._kept)], *complete[end:]]:
            files.remove_folder(other)
        if complete[end:]:
            files.sync(self.folder)  # else one of them could come back and be the newest

    def _write_files(self, folder: Path, snapshot: Snapshot, ring: Ring | None) -> dict[str, Any]:
        """Write the files of a checkpoint into a new folder; what its meta.json says."""
        files.remove_folder(folder)
        files.make_folder(folder)
        arrays, values = _separate(sign_states(snapshot))
        written = {
            "state.safetensors": _write(folder / "state.safetensors", save(arrays)),
            **({} if ring is None else self._write_ring(folder, ring)),
        }
        meta = {
            "format": FORMAT,
            "values": values,
            "replay": None
            if ring is None
            else {"num_added": ring.num_added, "capacity": ring.capacity},
            "files": written,
        }
        _write(folder / "meta.json", json.dumps(with_checksum(meta)).encode())
        files.sync(folder)
        return meta

    def remove_leftovers(self) -> None:
        """Remove what a killed process had not finished writing."""
        for leftover in self.folder.glob(f"{_UNFINISHED}*"):
            files.remove_folder(leftover)

    def _write_ring(self, folder: Path, ring: Ring) -> dict[str, Any]:
        written = {}
        for start in range(0, ring.size, SEGMENT_ROWS):
            name = f"replay-{start // SEGMENT_ROWS:05d}.bin"
            end = min(start + SEGMENT_ROWS, ring.size)
            if (
                self._last is not None
                and _unchanged(self._last[1], ring, start, end)
                and files.link(self._last[0] / name, folder / name)
            ):
                written[name] = self._last[1]["files"][name]
            else:
                written[name] = _write(folder / name, ring.rows[start:end])
        return written

    def _complete(self) -> list[Path]:
        """The oldest first; one that was being replaced comes before its replacement."""
        folders = [*step_folders(self.folder), *self.folder.glob(f"{_REPLACED}step-*")]
        return sorted(folders, key=lambda folder: (_name(folder), not _is_replaced(folder)))

    def config(self) -> dict[str, Any] | None:
        """The configuration in the newest intact checkpoint; those of `p3s train` hold none."""
        for folder in reversed(self._complete()):
            meta = _meta(folder)
            if meta is not None and "config" not in meta.get("values", {}):
                return None
            if meta is not None and _damage(folder) is None:
                return meta["values"]["config"]
        return None

    def read(self, ring: Ring | None) -> tuple[Snapshot | None, list[str]]:
        """The newest intact checkpoint, its rows put into the ring; and what to tell the user.

        None if there is no checkpoint at all; UserError if there are some but none is intact.
        """
        folders, notes = self._complete(), list[str]()
        for _ in range(_TRIES):
            snapshot, notes = self._newest(folders, ring)
            before, folders = folders, self._complete()
            if snapshot is not None and (not notes or folders == before):
                snapshot, line = without_foreign_states(snapshot)
                return snapshot, notes + ([] if line is None else [line])
            if folders == before:
                break
            # They may not be damaged: a run in progress has replaced some of them meanwhile.
        if folders:
            damages = "; ".join(note.removesuffix(USING_BEFORE) for note in notes)
            raise UserError(
                f"no checkpoint in {self.folder} is intact: the run cannot continue ({damages}); "
                "its policies can still be used (p3s evaluate)"
            )
        return None, notes

    def _newest(self, folders: list[Path], ring: Ring | None) -> tuple[Snapshot | None, list[str]]:
        """The newest intact one of these, and a line on each that is damaged."""
        notes: list[str] = []
        for folder in reversed(folders):
            damage = _damage(folder)
            if damage is None:
                with suppress(FileNotFoundError):
                    return self._read(folder, ring), notes
            notes.append(f"checkpoint {folder.name} is damaged ({damage}){USING_BEFORE}")
        return None, notes

    def _read(self, folder: Path, ring: Ring | None) -> Snapshot:
        meta = parse_checked((folder / "meta.json").read_bytes())
        if meta.get("format", 1) != FORMAT:
            version = "p3s 0.1" if meta.get("format", 1) == 1 else "an early p3s 0.2"
            raise UserError(
                f"{folder} was written by {version}: resume the run with that version "
                "(its policy, records and report still open here)"
            )
        if ring is not None:
            _read_ring(folder, meta, ring)
        self._last = (folder, meta)
        try:
            return _join(load_file(folder / "state.safetensors"), meta["values"])
        except (SafetensorError, KeyError) as error:
            raise UserError(f"{folder} holds no state of a run: {error}") from error


def _read_ring(folder: Path, meta: dict[str, Any], ring: Ring) -> None:
    """Put the rows of a checkpoint into the ring."""
    replay = meta.get("replay")
    if not isinstance(replay, dict) or replay.get("capacity") != ring.capacity:
        raise UserError(f"{folder} holds a replay of another size")
    if not isinstance(replay.get("num_added"), int) or replay["num_added"] < 0:
        raise UserError(f"{folder} does not say how much its replay holds")
    ring.num_added = replay["num_added"]
    for start in range(0, ring.size, SEGMENT_ROWS):
        name = f"replay-{start // SEGMENT_ROWS:05d}.bin"
        num_rows = min(SEGMENT_ROWS, ring.size - start)
        if meta["files"].get(name, {}).get("bytes") != num_rows * ring.row_bytes:
            raise UserError(f"{folder / name} does not hold the rows of this run")
        ring.load(start, (folder / name).read_bytes())


def _separate(snapshot: Snapshot) -> tuple[dict[str, np.ndarray], Snapshot]:
    """Arrays by 'part/name', and everything else by part and name."""
    arrays: dict[str, np.ndarray] = {}
    values: Snapshot = {}
    for part, own in snapshot.items():
        values[part] = {}
        for name, value in own.items():
            if isinstance(value, np.ndarray):
                arrays[f"{part}/{name}"] = np.asarray(value, order="C")
            else:
                values[part][name] = value
    return arrays, values


def _join(arrays: dict[str, np.ndarray], values: Snapshot) -> Snapshot:
    """The inverse of `_separate`."""
    snapshot = {part: dict(own) for part, own in values.items()}
    for name, array in arrays.items():
        part, _, own_name = name.partition("/")
        snapshot[part][own_name] = array
    return snapshot


def _unchanged(last: dict[str, Any], ring: Ring, start: int, end: int) -> bool:
    """Whether rows start:end are the same as when the last checkpoint was written."""
    before = last["replay"]["num_added"]
    if before < end:
        return False
    # Rows written since then are before, ..., num_added - 1, modulo the capacity.
    written = ring.num_added - before
    first = before % ring.capacity
    touched_until = first + written
    wraps_into = touched_until - ring.capacity
    touched = written > 0 and ((first < end and touched_until > start) or wraps_into > start)
    return not touched


def _write(path: Path, data: Any) -> dict[str, int]:
    files.write_new(path, data)
    return {"bytes": memoryview(data).nbytes, "crc32": zlib.crc32(data)}


def step_folders(folder: Path) -> list[Path]:
    """The checkpoints in a folder, in any order; folders with other names do not count."""
    return [path for path in folder.glob("step-*") if _STEP.fullmatch(path.name)]


def _is_replaced(folder: Path) -> bool:
    return folder.name.startswith(_REPLACED)


def _name(folder: Path) -> str:
    return folder.name.removeprefix(_REPLACED)


def _meta(folder: Path) -> dict[str, Any] | None:
    """What a checkpoint says of itself; None if that is damaged."""
    try:
        meta = parse_checked(files.read_bytes(folder / "meta.json"))
    except (OSError, ValueError):
        return None
    values = meta.get("values") if meta.get("format", 1) == FORMAT else {}
    parts = values.values() if isinstance(values, dict) else [None]
    known = all(isinstance(part, dict) for part in (meta.get("files"), *parts))
    return meta if known else None


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    meta = _meta(folder)
    if meta is None:
        return "meta.json cannot be read"
    written = meta["files"]
    if "state.safetensors" not in written:
        return "meta.json names no state"
    for name, expected in written.items():
        if not _FILE_NAME.fullmatch(name):
            return f"meta.json names {name!r}, which is not a file of a checkpoint"
        try:
            found = _measure(folder / name)
        except OSError:
            return f"{name} is missing"
        if found != expected:
            return f"{name} is not what was written"
    return None


def _measure(path: Path) -> dict[str, int]:
    """Size and checksum of a file, read piece by piece."""
    size = checksum = 0
    with files.open_regular(path) as file:
        while piece := file.read(_PIECE):
            size, checksum = size + len(piece), zlib.crc32(piece, checksum)
    return {"bytes": size, "crc32": checksum}
