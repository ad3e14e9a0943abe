"""Numbers and names as text for readers, and numbers as compact, safe JSON for the page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from p3s.report.statistics import Interval


def score_text(value: float | None) -> str:
    """A score, rounded to the digits worth reading."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:,.1f}" if size >= 10 else f"{value:,.3g}"


def ratio_text(value: float) -> str:
    """A normalized score or a probability."""
    return f"{value:.2f}" if math.isfinite(value) else "–"


def interval_text(interval: Interval) -> str:
    """An interval of normalized scores or probabilities."""
    return f"{interval.low:.2f} to {interval.high:.2f}" if math.isfinite(interval.low) else ""


def share_text(value: float) -> str:
    """A share in percent."""
    return f"{value:.0%}" if math.isfinite(value) else "–"


def p_text(value: float) -> str:
    """A p-value."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def stands_text(stands: bool | None) -> str:
    """Whether a verdict stays whichever environment is left out."""
    return {None: "–", True: "yes", False: "no"}[stands]


def duration_text(seconds: float) -> str:
    """A duration in its one natural unit: '42 s', '12 min', '5.6 h', '3.1 d'."""
    for unit, length, least in (("d", 86400, 172800), ("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / length:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds:.0f} s"


def count_text(number: int, noun: str) -> str:
    """A count with its noun: '1 seed', '5 seeds'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def first_names(names: list[str], most: int = 6) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def presets_text(presets: Iterable[tuple[str, str]]) -> str:
    """The preset of these methods: 'preset paper', or 'presets paper (TD3); authors (P3S)'."""
    methods: dict[str, list[str]] = {}
    for method, preset in dict.fromkeys(presets):
        methods.setdefault(preset, []).append(method)
    if len(methods) == 1:
        return f"preset {next(iter(methods))}"
    named = [f"{preset} ({first_names(own)})" for preset, own in methods.items()]
    return f"presets {'; '.join(named)}"


def compact(values: np.ndarray, digits: int = 5) -> list[float | int | None]:
    """Numbers for JSON with this many significant digits; non-finite numbers become null."""
    return [
        None if not math.isfinite(value) else _shortest(float(f"{value:.{digits}g}"))
        for value in values.tolist()
    ]


def _shortest(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def embed_json(data: Any) -> str:
    """JSON that is safe inside a <script> element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
