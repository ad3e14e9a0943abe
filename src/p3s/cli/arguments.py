"""Positional arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

Environment = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
