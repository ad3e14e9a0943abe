"""Arrays that several processes share, in a file that is memory where the system has such files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from p3s.errors import UserError

MEMORY = Path("/dev/shm")
"""Where files are memory, on Linux."""
Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shape and type of every shared array."""


def attach(path: str, layout: Layout) -> dict[str, np.ndarray]:
    """The arrays of a shared file."""
    arrays, start = {}, 0
    for name, (shape, dtype) in layout.items():
        # As a plain array, which is faster to index than a memmap.
        arrays[name] = np.memmap(path, np.dtype(dtype), "r+", start, shape).view(np.ndarray)
        start += -(-arrays[name].nbytes // 64) * 64
    return arrays


def shared_size(layout: Layout) -> int:
    """Bytes of a shared file, every array at a multiple of 64."""
    sizes = (np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in layout.values())
    return sum(-(-size // 64) * 64 for size in sizes)


def memory_file(size: int) -> tuple[int, str]:
    """An open file of this size, in memory if there is room for it."""
    for folder in (MEMORY, None):
        if folder is not None and not folder.is_dir():
            continue
        handle, path = tempfile.mkstemp(prefix="p3s-", dir=folder)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)  # a full disk is noticed here, not at a write
            else:
                os.truncate(handle, size)
        except OSError:
            os.close(handle)
            os.unlink(path)
            continue
        return handle, path
    raise UserError(f"cannot allocate {size:,} bytes of shared memory: use --env-workers 0")
