"""Everything that a run writes, and the few calls to the file system that it is made of.

A file is replaced whole or not at all, and what a function has written is on disk when it returns;
only rows that are appended wait for `sync`. An entry of a folder is on disk once its folder is
synced. `disk` makes the calls; tests put one in its place that fails, or that forgets what was not
synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from p3s.errors import TrainingStopped


class DiskError(TrainingStopped):
    """A file that cannot be written or removed."""

    def __init__(self, verb: str, path: Path, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = ": make room on the disk" if full else ""
        super().__init__(f"cannot {verb} {path}: {error.strerror or error}{hint}")


class Disk:
    """The calls that change files and folders."""

    def make_folder(self, path: Path) -> None:
        """Make one folder."""
        path.mkdir(exist_ok=True)

    def write(self, path: Path, data: Any) -> None:
        """Write a file anew and sync it."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # a link to something else, or what a killed process left
        with _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def append(self, path: Path, data: bytes) -> None:
        """Write to the end of a file, which is made if there is none."""
        with _open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
            file.write(data)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file off."""
        with _open(path, os.O_WRONLY) as file:
            os.ftruncate(file.fileno(), size)

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or a folder's entries, are on disk."""
        if path.is_dir() and os.name == "nt":
            return  # Windows opens no folders
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or a folder another name; a file of that name is replaced."""
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        os.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder."""
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


disk = Disk()


def _open(path: Path, flags: int) -> BinaryIO:
    """A file to be written, itself and not what a link of its name leads to."""
    safe = flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, safe, 0o666), "wb")


def open_regular(path: Path) -> BinaryIO:
    """A file to be read; OSError for a pipe or a device, which may have no end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def open_unlinked(path: Path) -> BinaryIO:
    """A file to be read, as `open_regular` does; OSError too where a link is part of the path."""
    if os.path.realpath(path) != str(path):
        raise OSError(errno.ELOOP, "a link leads there", str(path))
    return open_regular(path)


def read_bytes(path: Path) -> bytes:
    """What a regular file holds."""
    with open_regular(path) as file:
        return file.read()


@contextlib.contextmanager
def telling(verb: str, path: Path) -> Any:
    """Name the file and the reason where the disk refuses something."""
    try:
        yield
    except OSError as error:
        raise DiskError(verb, path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it, as far as there are none."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        with telling("make", folder):
            disk.make_folder(folder)
            disk.sync(folder.parent)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file whole or not at all: to a temporary name, to disk, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    with telling("write", path):
        try:
            disk.write(temporary, data)
            disk.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(temporary)
            raise
        disk.sync(path.parent)


def write_new(path: Path, data: Any) -> None:
    """Write a file that nobody looks for before its folder has its name."""
    with telling("write", path):
        disk.write(path, data)


def append(path: Path, data: bytes) -> None:
    """Write to the end of a file; it is on disk after `sync`."""
    with telling("write", path):
        disk.append(path, data)


def truncate(path: Path, size: int) -> None:
    """Cut a file off, on disk too."""
    with telling("write", path):
        disk.truncate(path, size)
        disk.sync(path)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    with telling("write", path):
        disk.sync(path)


def rename(source: Path, target: Path) -> None:
    """Give a file or a folder another name."""
    with telling("write", target):
        disk.rename(source, target)


def link(source: Path, target: Path) -> bool:
    """Give a file a second name; False where the file system cannot."""
    try:
        disk.link(source, target)
    except OSError:
        return False
    return True


def remove(path: Path) -> None:
    """Remove a file, if there is one, on disk too."""
    with telling("remove", path), contextlib.suppress(FileNotFoundError):
        disk.remove(path)
        disk.sync(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, if there is one; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            remove_folder(entry)
    with telling("remove", path), contextlib.suppress(FileNotFoundError):
        disk.remove(path)
