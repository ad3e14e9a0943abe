"""`p3s schemes`: the ways of using a population."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.plugins.loading import load_entry_points
from p3s.schemes import SCHEMES


@dataclass(frozen=True)
class Options:
    """No options."""


def run(options: Options) -> int:
    """Print a line or two for each scheme."""
    load_entry_points()
    for name, summary, paper_name in SCHEMES.summaries():
        print(f"{name:<12} {summary}")
        if paper_name:
            print(f"{'':<12} {paper_name}")
    return 0
