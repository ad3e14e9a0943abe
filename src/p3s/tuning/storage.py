"""Where trials are recorded: a journal, which is a file of JSON lines, or an SQL database.

A journal that several processes write to is locked for each entry, by a lock that ends with its
process. The next writer cuts off what a killed process left of an entry.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from p3s.errors import UserError
from p3s.fields.checks import is_count
from p3s.machine import require_optuna
from p3s.runs.files import make_folder, open_regular, truncate
from p3s.runs.locks import wait_for_lock

JOURNAL = "journal.log"
"""The journal of a search in its folder, unless another storage was chosen."""
BEGINNING = b'{"op_code":'
"""Of every entry."""
KINDS = 11
"""Kinds of entries in a journal of Optuna 4 and 5."""


def is_search(folder: Path) -> bool:
    """Whether a folder is that of a search with its journal."""
    return (folder / JOURNAL).is_file() and (folder / "trials").is_dir()


def open_storage(storage: str) -> Any:
    """Optuna's storage for a file, or for a URL of a database; UserError says what is wrong."""
    optuna = require_optuna()
    try:
        if "://" in storage:
            return optuna.storages.get_storage(storage)
        path = Path(storage)
        make_folder(path.parent)
        lock = JournalLock(path)
        lock.acquire()
        lock.release()
        check_journal(path)
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
        return optuna.storages.JournalStorage(backend)
    except UserError:
        raise
    except KeyError as error:
        what = f"an entry of its journal has no {error}"
        raise UserError(f"the storage {storage} cannot be opened: {what}") from error
    except Exception as error:  # whatever SQLAlchemy, Alembic and Optuna raise
        what = (str(error) or type(error).__name__).split("\n")[0]
        raise UserError(f"the storage {storage} cannot be opened: {what}") from error


class JournalLock:
    """Keeps other writers out of a journal; for Optuna, which asks for these two methods."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._lock = journal, journal.with_name(f"{journal.name}.lock")
        self._held: int | None = None

    def acquire(self) -> bool:
        """Wait for the lock, and cut off what is left of an entry."""
        self._held = wait_for_lock(self._lock)
        _mend(self._journal)
        return True

    def release(self) -> None:
        """Let others write."""
        assert self._held is not None
        os.close(self._held)


def _mend(journal: Path) -> None:
    if not journal.exists():
        return
    with open_regular(journal) as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole == 0 and content[: len(BEGINNING)] != BEGINNING[: len(content)]:
        raise UserError(f"{journal}:1: not a journal of Optuna: choose another --storage")
    truncate(journal, whole)


def check_journal(journal: Path) -> None:
    """Raise UserError for the first line that is not an entry of a journal."""
    if not journal.exists():
        return
    with open_regular(journal) as file:
        for number, line in enumerate(file, start=1):
            problem = _problem(line)
            if problem is not None:
                raise UserError(f"{journal}:{number}: {problem}: choose another --storage")


def _problem(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        return "the journal is damaged, or not one of Optuna"
    kind = entry.get("op_code")
    if kind is None or not is_count(kind) or "worker_id" not in entry:
        return "not an entry of a journal of Optuna 5"
    if kind >= KINDS:
        return f"an entry of a kind that Optuna 5 does not know, {kind}"
    return None
