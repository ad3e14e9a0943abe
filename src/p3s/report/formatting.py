"""Numbers as text for readers, and as short safe JSON for the page."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from p3s.report.statistics import Interval


def score_text(value: float | None) -> str:
    """A score with as many digits as are worth reading."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:,.1f}" if size >= 10 else f"{value:,.3g}"


def ratio_text(value: float) -> str:
    """A normalised score or a probability."""
    return f"{value:.2f}" if math.isfinite(value) else "–"


def interval_text(interval: Interval) -> str:
    """An interval of normalised scores or probabilities."""
    return f"{interval.low:.2f} to {interval.high:.2f}" if math.isfinite(interval.low) else ""


def compact(values: np.ndarray, places: int = 5) -> list[float | int | None]:
    """Numbers with so many significant places for JSON; NaN becomes null."""
    return [
        None if not math.isfinite(value) else _shortest(float(f"{value:.{places}g}"))
        for value in values.tolist()
    ]


def _shortest(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def embed_json(data: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
