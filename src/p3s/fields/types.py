"""Hyper-parameters as typed fields: their bounds, and values from users checked against both.

A field states its bounds in its type, `target_noise: NonNegative`, and is checked in one place,
`check_fields`; `convert` turns a value from a file or a caller into what the field holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from p3s.errors import UserError

LARGEST = 1e300
"""No number is larger: infinity is not, nor is a whole number that no float can hold."""


@dataclass(frozen=True)
class Bounds:
    """What a number may be; `above` and `below` exclude their bounds, `least` and `most` do not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Whether the number lies within the bounds; NaN never does, nor does infinity."""
        return (
            abs(value) < LARGEST
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"between {self.least} and {self.most}"
        parts = [] if self.above is None else [f"above {self.above}"]
        parts += [] if self.least is None else [f"at least {self.least}"]
        parts += [] if self.most is None else [f"at most {self.most:g}"]
        parts += [] if self.below is None else [f"below {self.below}"]
        return " and ".join(parts)


@dataclass(frozen=True)
class Text:
    """What a text has to be: in words, made from a user's value, and checked."""

    words: str
    made: Callable[[Any], str]
    """Raises Mismatch for what cannot be one."""
    is_one: Callable[[str], bool]

    def __str__(self) -> str:
        return self.words


Count = Annotated[int, Bounds(least=1)]
Critics = Annotated[int, Bounds(least=1, most=100)]
"""Networks that are made one by one: a file must not ask for a billion."""
CountOrZero = Annotated[int, Bounds(least=0)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(least=0)]
Ratio = Annotated[float, Bounds(least=1e-6, below=1)]
Share = Annotated[float, Bounds(least=0, most=1)]
Decay = Annotated[float, Bounds(least=0, below=1)]
Sizes = tuple[Count, ...]


class Mismatch(Exception):
    """A value of the wrong type; the message says what was expected."""


def field_types(*groups: type) -> dict[str, Any]:
    """Name and type of every field of these dataclasses, with bounds."""
    found: dict[str, Any] = {}
    for group in groups:
        hints = get_type_hints(group, include_extras=True)
        found |= {field.name: hints[field.name] for field in dataclasses.fields(group)}
    return found


def bare(expected: Any) -> Any:
    """A type without its bounds."""
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def text_of(expected: Any) -> Text | None:
    """What a text of this type has to be, if it is no text of any kind."""
    found = expected.__metadata__ if get_origin(expected) is Annotated else ()
    return next((item for item in found if isinstance(item, Text)), None)


def convert(value: Any, expected: Any) -> Any:
    """The value as a field of this type holds it; Mismatch if it cannot be one."""
    if (text := text_of(expected)) is not None:
        return text.made(value)
    expected = bare(expected)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        for choice in arguments:
            try:
                return convert(value, choice)
            except Mismatch:
                continue
    elif origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(item, arguments[0]) for item in value)
    elif expected is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                return float(value)
    elif not isinstance(expected, type) or type(value) is expected:
        return value
    raise Mismatch(f"expected {describe(expected)}, not {show(value)}")


def as_field(name: str, value: Any, expected: Any) -> Any:
    """A user's value as the field of this name holds it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return convert(value, expected)
    except Mismatch as error:
        raise UserError(f"{name}: {error}", name) from error


def check_fields(instance: Any) -> None:
    """Raise UserError for the first field whose value is out of bounds."""
    for name, expected in field_types(type(instance)).items():
        value = getattr(instance, name)
        bounds = _violated(value, expected)
        if bounds is not None:
            each = " each" if isinstance(value, tuple) else ""
            given = "a number without end" if _is_huge(value) else value
            raise UserError(f"{name} must be {bounds}{each}, not {given}", name)


def _is_huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= LARGEST


def _violated(value: Any, expected: Any) -> Bounds | str | None:
    """The bounds that a value violates, or None."""
    if (text := text_of(expected)) is not None:
        return None if isinstance(value, str) and text.is_one(value) else str(text)
    if get_origin(expected) is Annotated:
        found = [item for item in expected.__metadata__ if isinstance(item, Bounds)]
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        if found and isinstance(value, int | float):
            return None if found[0].allow(value) else found[0]
        expected = bare(expected)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        found = [_violated(value, choice) for choice in arguments if _fits(value, choice)]
        if not found:
            return describe(expected)
        return None if None in found else found[0]
    if origin is tuple and isinstance(value, tuple):
        failed = [_violated(item, arguments[0]) for item in value]
        return next((bounds for bounds in failed if bounds is not None), None)
    if origin is Literal and value not in arguments:
        return describe(expected)
    if expected is float and isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    return None


def _fits(value: Any, expected: Any) -> bool:
    """Whether the value has this type, whatever its bounds."""
    try:
        convert(value, expected)
    except Mismatch:
        return False
    return True


def describe(expected: Any) -> str:
    """A type in words."""
    if (text := text_of(expected)) is not None:
        return str(text)
    expected = bare(expected)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(choice) for choice in arguments if choice is not type(None))
    if origin is Literal:
        return " or ".join(show(choice) for choice in arguments)
    if origin is tuple:
        return f"a list, each {describe(arguments[0])}"
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return words.get(expected, getattr(expected, "__name__", str(expected)))


def show(value: Any) -> str:
    """A value as TOML writes it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "a table"
    if callable(value):
        return "what this function gives"
    text = "[" + ", ".join(map(show, value)) + "]" if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
