"""Locks on files that end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_lock(path: Path, shared: bool = False) -> int | None:
    """An open file that holds the lock, or None if another process holds it.

    A child that inherits the file holds the lock with it, as long as it lives.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
