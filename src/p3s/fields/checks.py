"""Checks of values in files from elsewhere: JSON that can be read may still hold anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
Checks = Mapping[str, Check]
"""For each key of a table, what its value must be."""


def is_whole(value: Any) -> bool:
    """Whether it is a whole number that a float can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 0."""
    return is_whole(value) and value >= 0


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) < 1e300 and math.isfinite(value)


def is_a(*kinds: type) -> Check:
    """Whether it is of one of these types."""
    return lambda value: isinstance(value, kinds)


def or_none(check: Check) -> Check:
    """Whether it is null, or passes the check."""
    return lambda value: value is None or check(value)


def each(check: Check, fewest: int = 0) -> Check:
    """Whether it is a list of values that all pass the check."""
    return lambda value: isinstance(value, list) and len(value) >= fewest and all(map(check, value))


def misfit(table: Mapping[str, Any], checks: Checks) -> str | None:
    """The first key whose value fails its check; a missing value counts as null."""
    return next((key for key, check in checks.items() if not check(table.get(key))), None)
