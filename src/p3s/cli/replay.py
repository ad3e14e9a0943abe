"""`p3s replay`: the transitions that a run remembers, as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from p3s.cli.arguments import Run
from p3s.runs.replays import export_replay


@dataclass(frozen=True)
class Options:
    """Write the replay of a run as one file, for p3s train --data or for numpy."""

    action: tyro.conf.Positional[Literal["export"]]
    """What to do with it."""
    run: Run
    """Run folder."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",), metavar="FILE.npz")] = None
    """File to write; RUN/replay.npz unless given."""


def run(options: Options) -> int:
    """Write the file."""
    out = options.run / "replay.npz" if options.out is None else options.out
    count = export_replay(options.run, out)
    print(f"wrote {count:,} transitions: {out}")
    return 0
