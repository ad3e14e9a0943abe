"""The traceback of what ended a run, in its folder: the error itself is one line."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path

from p3s.errors import UserError
from p3s.runs.files import DiskError, write_text

FILE = "traceback.txt"


def keep_traceback(folder: Path, error: BaseException) -> Path | None:
    """Write the traceback if the error comes from code that is not ours; the file, or None."""
    if not is_foreign(error):
        return None
    with suppress(DiskError):
        write_text(folder / FILE, "".join(traceback.format_exception(error)))
        return folder / FILE
    return None


def is_foreign(error: BaseException) -> bool:
    """Whether anything but a message to the user began it: a bug in an environment."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return not isinstance(cause, UserError | OSError)
