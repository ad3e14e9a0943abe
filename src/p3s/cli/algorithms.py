"""`p3s algorithms`: the base algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.algorithms import ALGORITHMS
from p3s.plugins.loading import load_entry_points


@dataclass(frozen=True)
class Options:
    """No options."""


def run(options: Options) -> int:
    """Print a line for each algorithm."""
    load_entry_points()
    for name, summary, actions in ALGORITHMS.summaries():
        print(f"{name:<12} {actions:<11} {summary}")
    return 0
