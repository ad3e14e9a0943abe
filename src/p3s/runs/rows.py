"""Rows of a run's records, checked: those before the first damaged one are used."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Any

from p3s.fields.checks import Checks, each, is_a, is_count, is_number, misfit, or_none
from p3s.runs.checksums import parse_checked
from p3s.runs.records import whole_lines

_NUMBERS = each(or_none(is_number))
_RETURNS = each(each(is_number, 1), 1)
_NEEDED: dict[str, Checks] = {
    "evaluations": {
        "step": is_count,
        "updates": is_count,
        "learner_returns": _RETURNS,
        "score": is_number,
        "mean": is_number,
        "seconds": is_number,
    },
    "lineage": {"step": is_count},
    "metrics": {"step": is_count},
    "scalars": {"step": is_count},
}
_OPTIONAL: dict[str, Checks] = {
    "evaluations": {
        "champion": or_none(is_count),
        "champion_return": or_none(is_number),
        "chief_pick": or_none(is_count),
        "chief_return": or_none(is_number),
        "deterministic_returns": _RETURNS,
        "deterministic_score": is_number,
    },
    "lineage": {
        "best": or_none(is_count),
        "beta": is_number,
        "spread": or_none(is_number),
        "change": or_none(is_number),
        "recent_returns": _NUMBERS,
    },
    "metrics": {
        "steps_per_second": is_number,
        "recent_returns": _NUMBERS,
        "shards": each(
            lambda shard: (
                isinstance(shard, dict)
                and misfit(shard, {"steps_per_second": is_number, "waiting": is_number}) is None
            )
        ),
        "learners": lambda value: isinstance(value, dict) and all(map(_NUMBERS, value.values())),
    },
    "scalars": {},
}
_CONFIG: Checks = {
    "scheme": is_a(str),
    "algorithm": is_a(str),
    "preset": is_a(str),
    "scheme_fields": is_a(dict),
    "algorithm_fields": is_a(dict),
    "environment": is_a(dict, NoneType),
    "versions": is_a(dict, NoneType),
    "machine": is_a(dict, NoneType),
    "commit": is_a(str, NoneType),
    "seed": is_count,
    "steps": is_count,
    "evaluation_period": is_count,
    "evaluation_episodes": is_count,
}


def check_config(config: dict[str, Any]) -> None:
    """Raise ValueError if a configuration cannot be shown with a run's records."""
    name = misfit({"evaluation_period": 0, "evaluation_episodes": 0, **config}, _CONFIG)
    env = config.get("environment")
    if name is None and env is not None and misfit(env, {"id": is_a(str), "kwargs": is_a(dict)}):
        name = "environment"
    radius = {"rho": is_number, "d_min": is_number}
    if name is None and misfit({"rho": 0, "d_min": 0, **config["scheme_fields"]}, radius):
        name = "scheme_fields"
    for group in ("versions", "machine"):
        words = (config.get(group) or {}).values() if name is None else ()
        if not all(isinstance(word, str | int | None) for word in words):
            name = group
    if name is not None:
        raise ValueError(f"{name!r} is missing or invalid")


def read_intact_rows(folder: Path, stream: str) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of a stream before the first damaged one, and a note on the damage if any."""
    path, rows = folder / f"{stream}.jsonl", list[dict[str, Any]]()
    if not path.exists():
        return rows, None
    for number, line in enumerate(whole_lines(path), start=1):
        row: dict[str, Any] = {}
        try:
            row = parse_checked(line)
            problem = row_problem(row, stream)
        except ValueError:
            problem = "is damaged"
        if problem is not None:
            return rows, f"{path}: line {number} {problem}, only the rows before it are used"
        rows.append(row)
    return rows, None


def row_problem(row: dict[str, Any], stream: str) -> str | None:
    """What is wrong with a row of a stream, as the end of a sentence; None if nothing is."""
    missing = next((key for key in _NEEDED[stream] if row.get(key) is None), None)
    if missing is not None:
        return f"has no {missing!r}"
    optional = {key: check for key, check in _OPTIONAL[stream].items() if key in row}
    invalid = misfit(row, {**_NEEDED[stream], **optional})
    if invalid is not None:
        return f"has an invalid {invalid!r}"
    if stream == "lineage" and "beta" in row:
        if not {"best", "spread", "change"} <= row.keys():
            return "has a 'beta' without what it follows from"
        if (row["spread"] is None) != (row["change"] is None):
            return "has only one of 'spread' and 'change'"
    return None
