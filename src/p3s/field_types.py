"""Values from a file or a caller against the types of the dataclass fields that they are for."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class Mismatch(Exception):
    """A value of the wrong type; the message says what was expected."""


def field_types(*groups: type) -> dict[str, Any]:
    """Name and type of every field of these dataclasses."""
    found: dict[str, Any] = {}
    for group in groups:
        hints = get_type_hints(group)
        found |= {field.name: hints[field.name] for field in dataclasses.fields(group)}
    return found


def convert(value: Any, expected: Any) -> Any:
    """The value as a field of this type holds it; Mismatch if it cannot be one."""
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
            return float(value)
    elif not isinstance(expected, type) or type(value) is expected:
        return value
    raise Mismatch(f"expected {describe(expected)}, not {show(value)}")


def describe(expected: Any) -> str:
    """A type in words."""
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
    """A value as it stands in TOML, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "a table"
    text = "[" + ", ".join(map(show, value)) + "]" if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
