"""`p3s export`: a policy as ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.chosen_policy import ChosenPolicy
from p3s.policies.onnx_export import export_onnx

OnnxFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.onnx")]


@dataclass(frozen=True, kw_only=True)
class Options(ChosenPolicy):
    """Write a policy as ONNX: observation in, action in the environment's own range out."""

    out: OnnxFile
    """File to write."""


def run(options: Options) -> int:
    """Write the graph."""
    export_onnx(options.load(), options.out)
    print(f"wrote {options.out}")
    return 0
