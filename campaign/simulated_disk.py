"""A disk that remembers what was asked of it, and what would be left of it after a crash.

`RecordedDisk` writes for real and keeps a log. `Crash` replays the log up to a moment and builds
the folder as it could be found afterward. What was synced is there. Of all the rest anything may
be missing: bytes of files that were not synced, also in the middle; names in folders that were not
synced, one by one. Only a rename is atomic.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from p3s.runs import files
from p3s.runs.files import Disk

PIECE = 1 << 16
"""Bytes that reach a file at a time."""


class Operation(NamedTuple):
    """One call to the file system: its name, its paths and what it writes."""

    name: str
    path: Path
    value: Any = None


class RecordedDisk(Disk):
    """The real disk, with a log of all that changes below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.log: list[Operation] = []

    def _note(self, name: str, path: Path, value: Any = None) -> None:
        if path.is_relative_to(self._root):
            self.log.append(Operation(name, path.relative_to(self._root), value))

    def make_folder(self, path: Path) -> None:
        self._note("make_folder", path)
        super().make_folder(path)

    def write(self, path: Path, data: Any) -> None:
        self._note("truncate" if path.exists() else "create", path, 0)
        content = bytes(data)
        for start in range(0, len(content), PIECE):
            self._note("append", path, content[start : start + PIECE])
        self._note("sync", path)
        super().write(path, data)

    def append(self, path: Path, data: bytes) -> None:
        if not path.exists():
            self._note("create", path)
        if data:
            self._note("append", path, data)
        super().append(path, data)

    def truncate(self, path: Path, size: int) -> None:
        self._note("truncate", path, size)
        super().truncate(path, size)

    def sync(self, path: Path) -> None:
        self._note("sync", path)
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        self._note("rename", source, target.name)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._note("link", source, target.relative_to(self._root))
        super().link(source, target)

    def remove(self, path: Path) -> None:
        if path.exists() or path.is_symlink():
            self._note("remove", path)
        super().remove(path)


@contextlib.contextmanager
def using(disk: Disk) -> Iterator[None]:
    """Let all that is written go to this disk."""
    before, files.disk = files.disk, disk
    try:
        yield
    finally:
        files.disk = before


@dataclass
class _File:
    synced: bytes = b""
    content: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Pieces by their place; None cuts the file off there."""


@dataclass
class _Folder:
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[dict[str, _File | _Folder | None]] = field(default_factory=list)

    def change(self, **names: _File | _Folder | None) -> None:
        self.pending.append(names)
        self.entries = _changed(self.entries, names)


class Crash:
    """The disk after the first operations of a log."""

    def __init__(self, log: list[Operation]) -> None:
        self._root = _Folder()
        for operation in log:
            self._apply(operation)

    def _apply(self, operation: Operation) -> None:
        name, path, value = operation
        folder, own = self._folder(path.parent), path.name
        if name in ("create", "make_folder"):
            folder.change(**{own: _File() if name == "create" else _Folder()})
        elif name == "rename":
            folder.change(**{own: None, value: folder.entries[own]})
        elif name == "link":
            self._folder(value.parent).change(**{value.name: folder.entries[own]})
        elif name == "remove":
            folder.change(**{own: None})
        else:
            self._apply_to(folder.entries[own] if own else self._root, operation)

    def _apply_to(self, target: _File | _Folder, operation: Operation) -> None:
        if isinstance(target, _Folder):
            target.synced, target.pending = dict(target.entries), []
        elif operation.name == "append":
            target.pending.append((len(target.content), operation.value))
            target.content += operation.value
        elif operation.name == "truncate":
            target.pending.append((operation.value, None))
            target.content = target.content[: operation.value]
        else:
            target.synced, target.pending = target.content, []

    def _folder(self, path: Path) -> _Folder:
        found = self._root
        for name in path.parts:
            entry = found.entries[name]
            assert isinstance(entry, _Folder)
            found = entry
        return found

    def left(self, kind: str, rng: random.Random) -> dict[str, bytes | None]:
        """What is found: content of files and None for folders, by their paths.

        kind: 'kept' if all reached the disk, as after a kill of the process alone; 'lost' if only
        what was synced did; 'mixed' for some of the rest.
        """
        found: dict[str, bytes | None] = {}

        def visit(folder: _Folder, prefix: str) -> None:
            entries = folder.synced
            for names in folder.pending:
                if kind == "kept" or (kind == "mixed" and rng.random() < 0.5):
                    entries = _changed(entries, names)
            for name, entry in entries.items():
                if isinstance(entry, _Folder):
                    found[prefix + name] = None
                    visit(entry, f"{prefix}{name}/")
                else:
                    found[prefix + name] = _content(entry, kind, rng)

        visit(self._root, "")
        return found


def _changed(
    entries: dict[str, _File | _Folder], names: dict[str, _File | _Folder | None]
) -> dict[str, _File | _Folder]:
    return {name: entry for name, entry in {**entries, **names}.items() if entry is not None}


def _content(file: _File, kind: str, rng: random.Random) -> bytes:
    content = bytearray(file.synced)
    for place, piece in file.pending:
        if kind == "lost" or (kind == "mixed" and rng.random() < 0.5):
            continue
        if piece is None:
            del content[place:]
            continue
        if kind == "mixed":
            piece = piece[: rng.randint(0, len(piece))]
        if len(content) < place:
            content += bytes(place - len(content))  # what came before it is missing
        content[place : place + len(piece)] = piece
    return bytes(content)


def write_tree(root: Path, tree: dict[str, bytes | None]) -> None:
    """Make the folder that was found."""
    root.mkdir(parents=True)
    for name, content in sorted(tree.items()):
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)


def digest(tree: dict[str, bytes | None]) -> str:
    """Two trees with the same digest are the same."""
    total = hashlib.sha256()
    for name, content in sorted(tree.items()):
        own = None if content is None else hashlib.sha256(content).digest()
        total.update(repr((name, own)).encode())
    return total.hexdigest()
