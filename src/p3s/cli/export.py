"""`p3s export`: a policy as ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import RunOrPolicy
from p3s.policy_onnx import export_onnx
from p3s.population import load

OnnxFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.onnx")]


@dataclass(frozen=True)
class Options:
    """Write a policy as ONNX: observation in, action in the environment's own range out."""

    policy: RunOrPolicy
    """Policy file, or run folder for its best policy."""
    out: OnnxFile
    """File to write."""


def run(options: Options) -> int:
    """Write the graph."""
    export_onnx(load(options.policy), options.out)
    print(f"wrote {options.out}")
    return 0
