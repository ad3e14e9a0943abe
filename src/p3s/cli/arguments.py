"""Positional arguments that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import tyro

Environment = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Wrappers = Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODULE:NAME")]


def literal(word: str) -> Any:
    """A number, truth value, list or null from the command line; any other word is itself."""
    try:
        return json.loads(word)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(word, word)
