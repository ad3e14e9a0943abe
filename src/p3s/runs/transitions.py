"""Transitions in a file: what `p3s replay export` writes and `--data` reads.

An npz archive of six arrays, (count, ...) each:

    observations, next_observations   float32 vectors or uint8 images
    actions                           in the environment's own range
    rewards                           numbers
    terminations, truncations         truth values

Reading it executes nothing. Sizes are checked before memory is taken for them.
"""

from __future__ import annotations

import io
import lzma
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from p3s.envs import Adapter
from p3s.errors import UserError
from p3s.experience.data import Data
from p3s.experience.minari_data import is_minari_name, read_minari
from p3s.experience.recorded import Recorded, as_data
from p3s.machine import available_memory
from p3s.runs.files import open_regular, write_bytes

MEMBERS = {f"{name}.npy": name for name in Recorded._fields}
READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
UNREADABLE = (
    OSError, ValueError, EOFError, RuntimeError, OverflowError, TypeError, SyntaxError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What reading an archive of anybody's making may raise."""


def read_data(source: str, env: Adapter) -> Data:
    """The transitions of a file or a Minari dataset, as rows for this environment."""
    found = read_minari(source) if is_minari_name(source) else read_transitions(Path(source))
    return as_data(found, env, source)


def write_transitions(path: Path, recorded: Recorded) -> None:
    """Write transitions as one file."""
    buffer = io.BytesIO()
    np.savez(buffer, **recorded._asdict())
    write_bytes(path, buffer.getbuffer())


def read_transitions(path: Path) -> Recorded:
    """The transitions in a file, as far as they can be checked without an environment."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            _check_members(archive, path)
            return Recorded(**{name: _array(archive, file) for file, name in MEMBERS.items()})
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}", "data") from error
    except zipfile.BadZipFile as error:
        raise UserError(f"{path} is damaged or no npz file: {error}", "data") from error
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read: {error}", "data") from error


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse an archive of other arrays, or of more than fits into memory."""
    names = archive.namelist()
    missing = [name for file, name in MEMBERS.items() if file not in names]
    others = [name.removesuffix(".npy") for name in names if name not in MEMBERS]
    if missing or others or len(names) != len(MEMBERS):
        what = f"misses {', '.join(missing)}" if missing else f"holds {', '.join(others[:3])} too"
        raise UserError(f"{path} {what}: it should hold {', '.join(MEMBERS.values())}", "data")
    needed, free = sum(info.file_size for info in archive.infolist()), available_memory()
    if free is not None and 2 * needed > free:
        raise UserError(
            f"{path} takes {2 * needed / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are free",
            "data",
        )


def _array(archive: zipfile.ZipFile, member: str) -> np.ndarray:
    """An array of an archive; ValueError if it is none of numbers, or not as large as it says."""
    size = archive.getinfo(member).file_size
    with archive.open(member) as file:
        shape, dtype = _header(file)  # pyright: ignore[reportArgumentType]
        if dtype.kind not in "biuf":
            raise ValueError(f"{MEMBERS[member]} are of type {dtype}, not numbers")
        if file.tell() + math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{MEMBERS[member]} are not as large as their header says")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)  # pyright: ignore


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array, before anything is read of it."""
    version = np.lib.format.read_magic(file)
    if version not in READERS:
        raise ValueError(f"an array of format {version}")
    shape, _, dtype = READERS[version](file)
    if not all(length >= 0 for length in shape):
        raise ValueError("an array of negative size")
    return shape, dtype
