"""`p3s config`: the configuration of a run as a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import Run
from p3s.config.run_file import run_file_text
from p3s.runs.files import write_text
from p3s.runs.opening import load_config


@dataclass(frozen=True)
class Options:
    """Write the configuration of a run as a file for `p3s train --config`."""

    run: Run
    """Run folder."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None
    """File to write; it is printed unless given."""


def run(options: Options) -> int:
    """Write or print the file."""
    text = run_file_text(load_config(options.run))
    if options.out is None:
        print(text, end="")
    else:
        write_text(options.out, text)
        print(f"wrote {options.out}")
    return 0
