"""The line of every key in a TOML file, so that an error can name it.

The standard library's parser returns values without positions. This one returns positions without
values, for text that the parser has accepted, so it need only follow table headers, keys, and
values that span several lines.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from p3s.errors import UserError

KeyPath = tuple[str | int, ...]
"""Keys and indices that lead to a value: ("methods", 1, "grid", "d_min")."""

_KEY = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n',
    re.DOTALL,
)


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """The values of a TOML text; an error names the file and the line."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UserError(f"{file} is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"(.*) \(at (?:line (\d+)|end)", str(error))
        line = (match and match[2]) or text.count("\n") + 1
        raise UserError(f"{file}:{line}: invalid TOML: {match[1] if match else error}") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{file}: invalid TOML: {error}") from error


class Positions:
    """The first and last line of every key and table header in a TOML text."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._spans: dict[KeyPath, tuple[int, int]] = {}
        self._read(text)

    def _read(self, text: str) -> None:
        table: KeyPath = ()
        counts: dict[KeyPath, int] = {}
        offset, line = 0, 1
        while offset < len(text):
            if match := _HEADER.match(text, offset):
                table = _table(_split(match[2]), match[1] == "[[", counts)
                start = line + match[0].count("\n", 0, match.start(1) - match.start())
                end, line = _end_of_line(text, match.end(), start)
                self._spans.setdefault(table, (start, start))
            elif match := _ASSIGNMENT.match(text, offset):
                start = line + match[0].count("\n", 0, match.start(1) - match.start())
                end, line = _end_of_value(text, match.end(), start)
                self._spans[(*table, *_split(match[1]))] = (start, line - 1)
            else:
                end, line = _end_of_line(text, offset, line)
            offset = end

    def span(self, path: KeyPath) -> tuple[int, int] | None:
        """First and last line of a key's assignment, or the header's line of a table."""
        return self._spans.get(path)

    def line(self, path: KeyPath, word: str | None = None) -> int:
        """The line of a key, or of the innermost table around it; 1 if there is none.

        word: if given, the line of the value that contains it.
        """
        while path and path not in self._spans:
            word = str(path[-1]) if word is None and isinstance(path[-1], str) else word
            path = path[:-1]
        first, last = self._spans.get(path, (1, 1))
        if word is not None:
            whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
            for number in range(first, last + 1):
                if whole.search(self._lines[number - 1]):
                    return number
        return first


def _split(dotted: str) -> tuple[str, ...]:
    """The parts of a dotted key, without quotes."""
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _table(keys: tuple[str, ...], is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The path that a header opens; the name of an array of tables means its last table."""
    path: KeyPath = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if is_array and position == len(keys) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _end_of_line(text: str, offset: int, line: int) -> tuple[int, int]:
    """Offset and number of the next line."""
    end = text.find("\n", offset)
    return (len(text) if end < 0 else end + 1), line + 1


def _end_of_value(text: str, offset: int, line: int) -> tuple[int, int]:
    """Offset and number of the line after a value, which may span several lines."""
    depth = 0
    for token in _TOKEN.finditer(text, offset):
        word = token[0]
        if word == "\n":
            line += 1
            if depth == 0:
                return token.end(), line
        elif word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        elif not word.startswith("#"):
            line += word.count("\n")
    return len(text), line + 1
