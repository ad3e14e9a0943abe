"""What is to be searched, as a user says it, checked.

--search learning_rate beta         a range made from the field's type, bounds and default
--search space.toml                 [search]
                                    learning_rate = {low = 1e-5, high = 1e-2, log = true}
                                    batch_size = [64, 256]
                                    beta = true             as if named on the command line
neither                             the set for the algorithm and the scheme, in spaces.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from p3s.config.options import RunOptions
from p3s.config.run import Config, field_values, resolve_spec
from p3s.config.run_file import read_text
from p3s.config.spec import RunSpec, misplaced
from p3s.config.toml_lines import Positions, parse_toml
from p3s.errors import UserError
from p3s.fields.checks import is_number
from p3s.fields.types import bare, field_types
from p3s.tuning.spaces import RANGES, Choices, Range, Space, alone, default_names, made_from

FIXED = {field.name for field in dataclasses.fields(RunOptions)} - {
    "buffer_size",
    "credit",
    "hindsight",
    "hindsight_goals",
}
"""Options that are the same for all trials."""


def search_spaces(spec: RunSpec, asked: Iterable[str]) -> dict[str, Space]:
    """What to search for a run: fields by name, a TOML file, both, or the default set."""
    config = resolve_spec(spec)
    known = _Fields(config)
    spaces, places = dict[str, Space](), dict[str, str]()
    for word in asked:
        if word.endswith(".toml"):
            for name, (space, place) in _read(Path(word), known).items():
                spaces[name], places[name] = space, place
        else:
            name = word.replace("-", "_")
            spaces[name], places[name] = known.space(name), ""
    if not spaces:
        spaces = {name: known.space(name) for name in default_names(config)}
    for name, space in spaces.items():
        _check(spec, name, space, places.get(name, ""))
    return spaces


def _check(spec: RunSpec, name: str, space: Space, place: str) -> None:
    """Raise UserError unless a run can have the ends of a range, or each of the choices."""
    origins = {**spec.origins, "env": place, name: place} if place else spec.origins
    for value in space.examples:
        fields = {**spec.fields, name: value}
        resolve_spec(dataclasses.replace(spec, fields=fields, origins=origins))


class _Fields:
    """The fields of a run: their types, and their values where they are not searched."""

    def __init__(self, config: Config) -> None:
        groups = (config.options, config.scheme, config.algorithm)
        self.types = field_types(*map(type, groups))
        del self.types["algorithm"]
        self.values = {name: v for group in groups for name, v in field_values(group).items()}
        self._names = config.scheme.name, config.algorithm.name

    def type_of(self, name: str) -> Any:
        """The type of a field that can be searched."""
        if name not in self.types:
            raise misplaced(name, set(self.types), *self._names)
        if name in FIXED:
            raise UserError(f"{name} is the same for all trials: it cannot be searched", name)
        return self.types[name]

    def is_whole(self, name: str) -> bool:
        """Whether a field holds whole numbers."""
        return bare(alone(self.type_of(name))) is int

    def space(self, name: str) -> Space:
        """A field's own space."""
        expected = self.type_of(name)
        space = RANGES.get(name) or made_from(expected, self.values[name])
        if space is None:
            example = f"[search] {name} = {{low = ..., high = ...}}, or a list of choices"
            raise UserError(f"{name} has no range of its own: give one in a file, {example}", name)
        return space


# ---------------------------------------------------------------------- files


def _read(path: Path, known: _Fields) -> dict[str, tuple[Space, str]]:
    """The spaces that a file declares, and the place of each."""
    text = read_text(path)
    content, lines = parse_toml(text, str(path)), Positions(text)
    found = dict[str, tuple[Space, str]]()
    table = content.get("search")
    for key in content:
        if key != "search" or not isinstance(table, dict) or not table:
            at = f"{path}:{lines.line((key,))}"
            raise UserError(f"{at}: fields are in one table, [search], not {key!r}")
    if table is None:
        raise UserError(f"{path} has no table [search]")
    for name, value in table.items():
        place = f"{path}:{lines.line(('search', name))}"
        try:
            found[name] = (_declared(name, value, known), place)
        except UserError as error:
            raise UserError(f"{place}: {error}", name) from error
    return found


def _declared(name: str, value: Any, known: _Fields) -> Space:
    """The space that a value of a file means."""
    whole = known.is_whole(name)
    if value is True:
        return known.space(name)
    if isinstance(value, list) and value:
        return Choices(tuple(value))
    if not isinstance(value, Mapping):
        raise UserError(
            f"{name} must be a list of choices, {{low = ..., high = ...}} or true", name
        )
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    if set(value) - {"low", "high", "log"} or not isinstance(log, bool):
        raise UserError(f"{name} must have low and high, and maybe log = true, no more", name)
    if low is None or high is None or not (is_number(low) and is_number(high)):
        raise UserError(f"{name}: low and high must be numbers", name)
    if whole and not (isinstance(low, int) and isinstance(high, int)):
        raise UserError(f"{name}: low and high must be whole numbers", name)
    if not low < high:
        raise UserError(f"{name}: low must be below high, not {low} and {high}", name)
    if log and low <= 0:
        raise UserError(f"{name}: low must be above 0 where log is true, not {low}", name)
    return Range(low, high, log, whole)
