"""Rows of the records as the few numbers that the page draws.

evaluations  [step, updates, seconds, score, mean, champion, chief's pick, [each learner]]
lineage      [step, best, β, spread, target of the spread, change], and events
metrics      [step, seconds, [each learner's recent return in training]]

An event is [step, kind, source, target]: learner `target` got the policy of `source`, or a new one
where the source is null. Kinds: copy (the scheme's), replaced (had diverged), child (of elites).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from p3s.chief import search_radius
from p3s.dashboard.reading import Row, Shorten
from p3s.fields.checks import is_count, is_number
from p3s.report.formatting import compact

MOST_LEARNERS = 32
"""How many learners of a run are shown."""
DIGITS = 6


def shorteners(config: dict[str, Any]) -> dict[str, Shorten]:
    """How to shorten the rows of each stream of a run."""
    fields = config["scheme_fields"]
    return {
        "evaluations": evaluation,
        "lineage": partial(review, rho=fields.get("rho"), d_min=fields.get("d_min")),
        "metrics": measured,
    }


def numbers(values: list[Any]) -> list[float | int | None]:
    """Numbers with the digits worth drawing; null where there is none."""
    known = [float(value) if is_number(value) else np.nan for value in values]
    return compact(np.array(known, float), DIGITS)


def evaluation(row: Row) -> tuple[list[Any], list[list[Any]]]:
    """A row of evaluations.jsonl."""
    played = row["learner_returns"][:MOST_LEARNERS]
    learners = [sum(map(float, returns)) / len(returns) for returns in played]
    names = ("seconds", "score", "mean", "champion_return", "chief_return")
    values = numbers([row.get(name) for name in names])
    return [row["step"], row["updates"], *values, numbers(learners)], []


def review(
    row: Row, rho: float | None, d_min: float | None
) -> tuple[list[Any] | None, list[list[Any]]]:
    """A row of lineage.jsonl: who was best, how hard the pull is, and who was replaced."""
    change = row.get("change")
    target = None
    if change is not None and rho is not None and d_min is not None:
        target = search_radius(change, rho, d_min)
    best = _learner(row.get("best"))
    if best is None and row.get("beta") is None:
        return None, events(row)
    values = numbers([row.get("beta"), row.get("spread"), target, change])
    return [row["step"], best, *values], events(row)


def events(row: Row) -> list[list[Any]]:
    """Who got another policy at a row of the lineage."""
    step, found = row["step"], list[list[Any]]()

    def add(kind: str, source: Any, target: Any) -> None:
        if _learner(target) is not None and source != target:
            found.append([step, kind, _learner(source), target])

    for pair in _some(row.get("copies")):
        if isinstance(pair, list) and len(pair) == 2:
            add("copy", *pair)
    for target in _some(row.get("copied_to")):
        add("copy", row.get("best"), target)
    kind = "replaced" if "source" in row else "child"
    for target in _some(row.get("replaced")):
        add(kind, row.get("source"), target)
    return found


def measured(row: Row) -> tuple[list[Any] | None, list[list[Any]]]:
    """A row of metrics.jsonl: the time, and each learner's return in training."""
    if not is_number(row.get("seconds")):
        return None, []
    recent = row.get("recent_returns") or []
    return [row["step"], *numbers([row["seconds"]]), numbers(recent[:MOST_LEARNERS])], []


def now(row: Row) -> dict[str, Any]:
    """The last row of metrics.jsonl: losses of each learner, and the pace of each shard."""
    losses = row.get("learners") or {}
    named = [(name, losses[name]) for name in ("value_loss", "policy_loss") if name in losses]
    shards = [
        numbers([shard["steps_per_second"], shard["waiting"]]) for shard in _some(row.get("shards"))
    ]
    return {
        "recent": numbers((row.get("recent_returns") or [])[:MOST_LEARNERS]),
        "losses": {name: numbers(values[:MOST_LEARNERS]) for name, values in named},
        "shards": shards,
    }


def _learner(value: Any) -> int | None:
    """The number of a learner that is shown."""
    return value if is_count(value) and value < MOST_LEARNERS else None


def _some(value: Any) -> list[Any]:
    return value[:MOST_LEARNERS] if isinstance(value, list) else []
