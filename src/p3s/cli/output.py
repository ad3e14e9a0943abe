"""Where a command's lines go: a reader that goes away ends no training."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


def to_nowhere(stream: Any) -> None:
    """Let a stream whose reader is gone go on without one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class LastingStream:
    """A text stream that is written to whether anybody reads or not."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or forget."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            to_nowhere(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush, or forget."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            to_nowhere(self._stream)


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Let no closed pipe end what is done meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LastingStream(sys.stdout), LastingStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
