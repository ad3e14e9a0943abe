"""Rates that change over a run, written as text: on the command line, in files, in records.

    linear(3e-4, 1e-5)           in a line from the first to the last
    cosine(3e-4, 1e-5)           along half a wave of a cosine
    points(1e-5, 3e-4, 1e-5)     through these at equal distances, in lines between them

In Python `linear` and `cosine` write them, and a function of the run's progress, from 0 to 1, is
taken at `NUM_POINTS` points. So a record holds a schedule whole, and no code has to be found again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from p3s.fields.types import Mismatch, Positive, Text, show

NUM_POINTS = 101
"""Points of a run at which a function of its progress is asked."""
_WRITTEN = re.compile(r"(linear|cosine|points)\(([^()]*)\)")
_FORM = "a schedule, linear(3e-4, 1e-5), cosine(3e-4, 1e-5) or points(...), of numbers above 0"


class Schedule(NamedTuple):
    """What a schedule's text says."""

    shape: str
    values: tuple[float, ...]


@lru_cache(maxsize=64)
def parse_schedule(text: str) -> Schedule | None:
    """The schedule that a text is; None if it is none. Its end may be 0."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    try:
        values = tuple(float(word) for word in found[2].split(","))
    except ValueError:
        return None
    finite = all(math.isfinite(value) for value in values)
    within = all(value > 0 for value in values[:-1]) and values[-1] >= 0
    fits = len(values) == 2 if found[1] != "points" else len(values) >= 2
    return Schedule(found[1], values) if finite and within and fits else None


def linear(start: float, end: float) -> str:
    """A rate that goes from `start` to `end` in a line over the run."""
    return f"linear({start:g}, {end:g})"


def cosine(start: float, end: float) -> str:
    """A rate that goes from `start` to `end` along half a wave of a cosine over the run."""
    return f"cosine({start:g}, {end:g})"


def as_text(value: Any) -> str:
    """A schedule from a user as text; Mismatch if it is none."""
    text = _through_points(value) if callable(value) else value
    if not isinstance(text, str) or parse_schedule(text) is None:
        raise Mismatch(f"expected {_FORM}, not {show(value)}")
    return text.strip()


def _through_points(function: Callable[[float], Any]) -> str:
    """A function of progress, at points."""
    found = [function(index / (NUM_POINTS - 1)) for index in range(NUM_POINTS)]
    try:
        return f"points({', '.join(f'{float(value):.6g}' for value in found)})"
    except (TypeError, ValueError) as error:
        raise Mismatch(f"expected {_FORM}, not {show(function)}") from error


Rate = (
    Positive | Annotated[str, Text(_FORM, as_text, lambda text: parse_schedule(text) is not None)]
)
"""A number above 0, or a schedule of them."""
