"""Locks on files that end with the process that holds them, however it ends.

POSIX     flock, shared or exclusive.
Windows   byte ranges far beyond the end of the file, so that it stays readable: an exclusive lock
          takes all of them, a shared one takes any that is free.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import os
import time
from pathlib import Path

from p3s.errors import UserError
from p3s.runs.files import open_unlinked, telling

POLL_SECONDS = 0.02
_FIRST_BYTE = 1 << 30
_NUM_SHARED = 64
"""How many processes may share a lock on Windows."""


def try_lock(path: Path, shared: bool = False) -> int | None:
    """An open file that holds the lock, or None if another process holds it.

    On POSIX a child that inherits the file holds the lock with it, as long as it lives.
    """
    with telling("write", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        locked = _lock(descriptor, shared)
    except OSError as error:
        os.close(descriptor)
        raise no_locks(path, error) from error
    if not locked:
        os.close(descriptor)
        return None
    return descriptor


def wait_for_lock(path: Path) -> int:
    """An open file that holds the lock, as soon as no other process does."""
    while (descriptor := try_lock(path)) is None:
        time.sleep(POLL_SECONDS)
    return descriptor


def is_locked(path: Path) -> bool | None:
    """Whether a process holds the lock; nothing is written. None where that cannot be told."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        with open_unlinked(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return False


def no_locks(path: Path, error: OSError) -> UserError:
    """The error where the file system refuses locks."""
    return UserError(
        f"{path} cannot be locked ({error.strerror or error}), and two processes that write to one "
        "folder would spoil it: choose a folder on a disk of this machine"
    )


def _lock(descriptor: int, shared: bool) -> bool:
    try:
        import fcntl
    except ImportError:
        return _lock_bytes(descriptor, shared)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_bytes(descriptor: int, shared: bool) -> bool:
    try:
        import msvcrt
    except ImportError:
        raise UserError("this Python cannot lock files: it has neither fcntl nor msvcrt") from None
    starts, size = (range(_NUM_SHARED), 1) if shared else ((0,), _NUM_SHARED)
    for start in starts:
        os.lseek(descriptor, _FIRST_BYTE + start, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, size)
        except OSError:
            continue
        os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    return False
