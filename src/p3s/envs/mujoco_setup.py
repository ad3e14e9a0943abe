"""MuJoCo as a training wants it: pictures without a screen, and every warning once.

MuJoCo is optional (`p3s[mujoco]`): without it there is nothing to set up.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

DROPPED = ("'settotalmass'",)
"""Words of warnings about models that others ship (Gymnasium's half_cheetah.xml, dm_control's): no
user can do anything about them."""


def draw_without_screen() -> None:
    """Let MuJoCo draw where there is no window system, unless the user chose how it draws."""
    os.environ.setdefault("MUJOCO_GL", "egl")


def warn_once(out: TextIO | None = None) -> None:
    """Write each warning once, to `out` or standard error, not to a file in the current folder.

    Every copy of an environment says the same thing. An existing handler is kept.
    """
    try:
        import mujoco
    except ImportError:
        return
    if mujoco.get_mju_user_warning() is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    said: set[str] = set()

    def warn(message: str | bytes) -> None:
        text = message.decode() if isinstance(message, bytes) else message
        if text not in said and not any(word in text for word in DROPPED):
            said.add(text)
            # An error would pass through C, which aborts the process.
            with suppress(OSError, ValueError):
                print(f"MuJoCo: {text}", file=out or sys.stderr, flush=True)

    mujoco.set_mju_user_warning(warn)  # pyright: ignore[reportAttributeAccessIssue]
