"""Find run folders below some folders: breadth first, through no links, within bounds.

A folder with a config.json is a run, and nothing below it is looked at. A folder with a cells.json
is a study: it names its runs, and says which of them failed or have not started.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.errors import printable
from p3s.report.failures import read_failure
from p3s.report.formatting import count_text
from p3s.report.results import check_cell
from p3s.runs.checksums import parse_json
from p3s.runs.files import open_unlinked

MOST_RUNS, MOST_ENTRIES, DEEPEST = 300, 50_000, 8
"""Bounds of a search: runs, entries of folders, folders in folders."""
MOST_BYTES = 4 << 20
"""The largest config.json, cells.json or failure that is read."""


@dataclass(frozen=True)
class Found:
    """A run folder, and what its study says of it."""

    path: Path
    root: Path
    cell: dict[str, Any] = field(default_factory=dict)
    failure: Path | None = None
    """Where its study would say why it failed."""


@dataclass
class Search:
    """What was found."""

    runs: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_small(path: Path) -> bytes:
    """What a small regular file holds; OSError if it is not one, or if a link leads there."""
    with open_unlinked(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"it is larger than {MOST_BYTES:,} bytes")
    return content


def search(roots: list[Path]) -> Search:
    """The runs in and below these folders, which must be resolved."""
    found, left = Search(), MOST_ENTRIES
    cells: dict[Path, Found] = {}
    level = [(root, root) for root in roots]
    seen: set[Path] = set()
    for _ in range(DEEPEST):
        below: list[tuple[Path, Path]] = []
        for folder, root in level:
            if folder in seen:
                continue
            seen.add(folder)
            entries = _entries(folder, left)
            left -= len(entries)
            if "config.json" in entries:
                found.runs.append(cells.get(folder, Found(folder, root)))
                continue
            if "cells.json" in entries:
                cells |= _study(folder, root, found)
            names = sorted(name for name, is_folder in entries.items() if is_folder)
            below += [(folder / name, root) for name in names if not name.startswith(".")]
        level = below
    if left <= 0:
        found.notes.append(f"Only the first {MOST_ENTRIES:,} files were looked at for runs.")
    if len(found.runs) > MOST_RUNS:
        found.notes.append(f"Only the first {MOST_RUNS} of {len(found.runs):,} runs are followed.")
        del found.runs[MOST_RUNS:]
    return found


def _entries(folder: Path, most: int) -> dict[str, bool]:
    """The names in a folder, and which of them are folders; links count as files."""
    entries: dict[str, bool] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if len(entries) >= most:
                break
            entries[entry.name] = entry.is_dir(follow_symlinks=False)
    return entries


def _study(folder: Path, root: Path, found: Search) -> dict[Path, Found]:
    """The runs that a study names; how many have not started becomes a note."""
    cells: dict[Path, Found] = {}
    try:
        for cell in parse_json(read_small(folder / "cells.json"))["cells"]:
            checked, failures = check_cell(cell), folder / "failures"
            path = folder / checked["run"]
            cells[path] = Found(path, root, checked, failures / f"{checked['id']}.json")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.notes.append(printable(f"{folder / 'cells.json'} is damaged or not of a study."))
        return {}
    waiting = [run for run in cells.values() if not (run.path / "config.json").exists()]
    if waiting:
        count = f"{len(waiting):,} of {count_text(len(cells), 'run')}"
        verb = "has" if len(waiting) == 1 else "have"
        found.notes.append(printable(f"Study {folder.name}: {count} {verb} not started."))
    return cells


def failure_line(path: Path | None) -> str | None:
    """Why a study's run failed, in one line; None if it did not."""
    failure = None if path is None else read_failure(path, read_small)
    lines = [] if failure is None else failure.error.strip().splitlines()
    return printable(lines[0][:500]) if lines else None
