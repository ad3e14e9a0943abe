"""JSON objects that carry a checksum of themselves: rows of records, config.json, meta.json.

A byte that changed on disk is noticed when the object is read. Objects without a checksum are those
of older versions, and are read as they are.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

CHECKSUM = "crc32"


def with_checksum(value: dict[str, Any]) -> dict[str, Any]:
    """The object with its checksum as the last entry."""
    return {**value, CHECKSUM: _checksum(value)}


def parse_checked(text: str | bytes) -> dict[str, Any]:
    """The object that a text holds, without its checksum; ValueError if it is damaged."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    expected = value.pop(CHECKSUM, None)
    if expected is not None and expected != _checksum(value):
        raise ValueError("it is not what was written: its checksum does not match")
    return value


def parse_json(text: str | bytes) -> Any:
    """The value that a text holds; ValueError if it is nested too deeply or cannot be shown."""
    try:
        value = json.loads(text)
        escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
        if escape in text.lower():  # pyright: ignore[reportOperatorIssue]
            json.dumps(value, ensure_ascii=False).encode()  # half of a pair is not a character
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _checksum(value: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(value).encode())
