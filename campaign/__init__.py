"""The campaign of faults: what can go wrong is made to go wrong, and what was lost is counted.

One module per section, with a function `run(short: bool) -> Result`. The short form takes seconds
and is part of the tests; the long one is `make campaign`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECTIONS: tuple[str, ...] = (
    "long_run",
    "crash_points",
    "disk_errors",
    "byte_flips",
    "strangers",
    "guided_fuzzing",
    "concurrency",
    "kills",
    "environments",
    "learners",
)
"""The modules, in the order in which they run."""


@dataclass(frozen=True)
class Result:
    """What a section tried, and how often something was lost."""

    name: str
    """What was tried, in the plural: 'crash points'."""
    tried: int
    lost: int
    notes: list[str] = field(default_factory=list)
    """One line for each loss, and for what a reader should know beyond the counts."""
