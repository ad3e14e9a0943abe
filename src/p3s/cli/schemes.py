"""`p3s schemes`: the ways of using a population."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.plugins import load_entry_points
from p3s.schemes import SCHEMES


@dataclass(frozen=True)
class Options:
    """No options."""


def run(options: Options) -> int:
    """Print a line or two for each scheme."""
    load_entry_points()
    for name, scheme in SCHEMES.items():
        print(f"{name:<12} {scheme.__doc__}\n{'':<12} {scheme.paper_name}")
    return 0
