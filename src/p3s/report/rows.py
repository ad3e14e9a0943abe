"""Rows of a run's records, checked: those before the first damaged one are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path, PurePath
from types import NoneType
from typing import Any

from p3s.errors import printable
from p3s.runs.checksums import parse_checked
from p3s.runs.records import whole_lines

Checks = dict[str, Callable[[Any], bool]]
"""For each key of a row, what its value must be."""


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) < 1e300 and math.isfinite(value)


def is_count(value: Any) -> bool:
    """Whether it is a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _each(check: Callable[[Any], bool], fewest: int = 0) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= fewest and all(map(check, value))


_NEEDED: dict[str, Checks] = {
    "evaluations": {
        "step": is_count,
        "updates": is_count,
        "learner_returns": _each(_each(is_number, 1), 1),
        "score": is_number,
        "mean": is_number,
        "seconds": is_number,
    },
    "lineage": {"step": is_count},
    "metrics": {"step": is_count},
}
_OPTIONAL: dict[str, Checks] = {
    "evaluations": {
        "champion": _or_none(is_count),
        "champion_return": _or_none(is_number),
        "chief_pick": _or_none(is_count),
        "chief_return": _or_none(is_number),
        "deterministic_returns": _each(_each(is_number, 1), 1),
        "deterministic_score": is_number,
    },
    "lineage": {
        "best": _or_none(is_count),
        "beta": is_number,
        "spread": _or_none(is_number),
        "change": _or_none(is_number),
        "recent_returns": _each(_or_none(is_number)),
    },
    "metrics": {
        "steps_per_second": is_number,
        "recent_returns": _each(_or_none(is_number)),
        "shards": _each(
            lambda shard: (
                isinstance(shard, dict)
                and all(is_number(shard.get(name)) for name in ("steps_per_second", "waiting"))
            )
        ),
        "learners": lambda value: (
            isinstance(value, dict) and all(map(_each(_or_none(is_number)), value.values()))
        ),
    },
}


def check_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """An entry of cells.json; ValueError if a study could not have written it."""
    for name in ("id", "run", "method", "env"):
        if not isinstance(cell[name], str) or not cell[name]:
            raise ValueError(f"the {name} of a run makes no sense")
    for name in ("id", "run"):
        parts = PurePath(cell[name]).parts
        if PurePath(cell[name]).is_absolute() or ".." in parts or "\0" in cell[name]:
            raise ValueError(f"{cell[name]!r} is not in the study's folder")
    if not is_count(cell["seed"]) or not _or_none(is_number)(cell.get("paper")):
        raise ValueError("the seed or the published score of a run makes no sense")
    return {**cell, "method": printable(cell["method"]), "env": printable(cell["env"])}


def check_config(config: dict[str, Any]) -> None:
    """Raise ValueError if a configuration cannot be shown beside a run's records."""
    kinds: dict[str, Any] = {
        "scheme": str, "algorithm": str, "preset": str, "scheme_fields": dict,
        "algorithm_fields": dict, "environment": (dict, NoneType), "versions": (dict, NoneType),
        "machine": (dict, NoneType), "commit": (str, NoneType),
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(config.get(name), kind):
            raise ValueError(f"its {name} makes no sense")
    if not (is_count(config["seed"]) and is_count(config["steps"])):
        raise ValueError("its seed and its steps must be whole numbers")
    if not all(is_count(config.get(f"evaluation_{name}", 0)) for name in ("period", "episodes")):
        raise ValueError("its evaluations make no sense")
    env = config["environment"]
    if env is not None and not (isinstance(env["id"], str) and isinstance(env["kwargs"], dict)):
        raise ValueError("its environment makes no sense")
    nested = [*(config.get("versions") or {}).values(), *(config.get("machine") or {}).values()]
    if not all(isinstance(value, str | int | None) for value in nested):
        raise ValueError("it does not say where it comes from")
    for name in ("rho", "d_min"):
        if not is_number(config["scheme_fields"].get(name, 0.0)):
            raise ValueError(f"its {name} is no number")


def read_intact_rows(folder: Path, stream: str) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of a stream before the first damaged one, and a note on the damage if any."""
    path, rows = folder / f"{stream}.jsonl", list[dict[str, Any]]()
    if not path.exists():
        return rows, None
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            row = parse_checked(line)
        except ValueError:
            return rows, f"{path}: line {number} is damaged, only the rows before it are used"
        problem = _problem(row, stream)
        if problem is not None:
            return rows, f"{path}: line {number} {problem}, only the rows before it are used"
        rows.append(row)
    return rows, None


def _problem(row: dict[str, Any], stream: str) -> str | None:
    for key, check in _NEEDED[stream].items():
        if row.get(key) is None:
            return f"has no {key!r}"
        if not check(row[key]):
            return f"has a {key!r} that makes no sense"
    for key, check in _OPTIONAL[stream].items():
        if key in row and not check(row[key]):
            return f"has a {key!r} that makes no sense"
    if stream == "lineage" and "beta" in row:
        if not {"best", "spread", "change"} <= row.keys():
            return "has a 'beta' without what it follows from"
        if (row["spread"] is None) != (row["change"] is None):
            return "has only one of 'spread' and 'change'"
    return None
