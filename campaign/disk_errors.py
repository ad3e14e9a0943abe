"""Disk errors: every call to the file system fails in turn; the disk is full, broken or read-only.

The run says in one line what failed. What was written before is kept: the same command, or a
resume, goes on to the records and policies of the undisturbed run.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers import record, small_config

from campaign import Result
from campaign.simulated_disk import using
from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.files import Disk

CALLS = ("make_folder", "write", "append", "truncate", "sync", "rename", "link", "remove")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
STEPS = 200


class FailingDisk(Disk):
    """A disk whose calls fail from one on, the first write after half of its bytes."""

    def __init__(self, first: int, code: int) -> None:
        self._first, self._code, self.calls = first, code, 0
        for name in CALLS:
            setattr(self, name, self._failing(name, getattr(self, name)))

    def _failing(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def maybe(path: Path, *values: Any) -> None:
            self.calls += 1
            if self.calls < self._first:
                return call(path, *values)
            if self.calls == self._first and name in ("write", "append"):
                content = memoryview(values[0]).cast("B")
                call(path, bytes(content[: len(content) // 2]))
            raise OSError(self._code, os.strerror(self._code))

        return maybe


def train(path: Path) -> None:
    """Begin a run or go on with it, to its end."""
    if (path / "config.json").exists():
        training, _ = opening.reopen(path)
    else:
        config = small_config(steps=STEPS, checkpoint_period=50, evaluation_period=100)
        training = opening.begin(config, path)
    try:
        training.run(STEPS)
    finally:
        training.close()


def run(short: bool) -> Result:
    """Let every call of a run fail in turn."""
    notes, tried, said = list[str](), 0, set[str]()
    with tempfile.TemporaryDirectory() as folder:
        counting = FailingDisk(1 << 60, 0)
        with using(counting):
            train(Path(folder) / "whole")
        expected = record(Path(folder) / "whole")
        for first in range(1, counting.calls + 1, counting.calls // 6 if short else 1):
            for code in ERRORS[first % 3 :][:1] if short else ERRORS:
                tried += 1
                problem = lost(Path(folder) / f"{first}-{code}", first, code, expected, said)
                if problem is not None:
                    notes.append(f"call {first}, {errno.errorcode[code]}: {problem}")
    count = len(notes)
    notes.append(f"{counting.calls} calls; among the lines: {min(said, key=len)}")
    return Result("writes failed", tried, count, notes)


def lost(path: Path, first: int, code: int, expected: Any, said: set[str]) -> str | None:
    """What was lost or not said when the calls from one on failed, or None."""
    try:
        with using(FailingDisk(first, code)):
            train(path)
    except UserError as error:
        line = str(error).replace(f"{path}{os.sep}", "")
        said.add(line)
        if "\n" in line or os.strerror(code) not in line or "cannot " not in line:
            return f"it said {line!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "nothing was said"
    try:
        train(path)
    except UserError as error:
        return f"it cannot go on: {error}"
    return None if record(path) == expected else "it went on to other records"
