"""MuJoCo as a command wants it: pictures without a screen, and every warning once."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO

import mujoco


def prepare_mujoco(out: TextIO) -> None:
    """Draw without a screen, and write warnings to `out`, not to a file in the current folder.

    Every copy of an environment says the same thing: once is enough.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")
    said: set[str] = set()

    def warn(message: str | bytes) -> None:
        text = message.decode() if isinstance(message, bytes) else message
        if text not in said:
            said.add(text)
            # An error would pass through C, which aborts the process.
            with suppress(OSError, ValueError):
                print(f"MuJoCo: {text}", file=out, flush=True)

    mujoco.set_mju_user_warning(warn)  # pyright: ignore[reportAttributeAccessIssue]
