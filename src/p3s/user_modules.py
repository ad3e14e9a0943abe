"""Modules that a user names: where they are looked for."""

from __future__ import annotations

import os
import sys


def search_current_folder() -> None:
    """Let modules that a user names be found in the current folder too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
