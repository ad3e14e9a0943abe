"""How the chief guided a population: best learner, β and distances over time, for the charts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from p3s.chief import search_radius
from p3s.report.curves import thin
from p3s.report.formatting import compact
from p3s.report.results import RunResult

POINTS = 160


def chief_data(runs: list[RunResult]) -> list[dict[str, Any]]:
    """Lineage strip, β and distances of every run with a population and a chief."""
    return [
        run_data(run)
        for run in runs
        if run.num_learners > 1 and any(row.get("best") is not None for row in run.lineage)
    ]


def run_data(run: RunResult) -> dict[str, Any]:
    """Lineage strip, β and distances of one run."""
    data: dict[str, Any] = {"name": run.name, "strip": lineage_strip(run)}
    numbers = distances(run)
    return data | {
        name: compact(values, 9 if name == "steps" else 4) for name, values in numbers.items()
    }


def distances(run: RunResult, points: int = POINTS) -> dict[str, np.ndarray]:
    """β, spread, target of the spread and change over time; empty for a scheme without β."""
    rows = [row for row in run.lineage if row.get("beta") is not None]
    if not rows:
        return {}
    rows = [rows[index] for index in thin(len(rows), points)]
    fields = run.config["scheme_fields"]

    def column(key: str) -> np.ndarray:
        return np.array([np.nan if row.get(key) is None else row[key] for row in rows], float)

    numbers = {"steps": column("step"), "beta": column("beta")}
    numbers |= {"spread": column("spread"), "change": column("change")}
    numbers["target"] = np.full(len(rows), np.nan)
    if "rho" in fields and "d_min" in fields:
        numbers["target"] = np.array(
            [search_radius(change, fields["rho"], fields["d_min"]) for change in numbers["change"]]
        )
    return numbers


def lineage_strip(run: RunResult, most: int = 200) -> list[tuple[int, int, int]]:
    """The best learner over time as (first step, last step, learner); empty if none was chosen.

    A choice holds until the next review. With more than `most` reviews, neighboring reviews are
    merged and the most frequent learner stands for them.
    """
    rows = [row for row in run.lineage if row.get("best") is not None]
    if not rows:
        return []
    ends = [row["step"] for row in rows[1:]] + [max(rows[-1]["step"], run.last_step)]
    size = -(-len(rows) // most)
    parts: list[tuple[int, int, int]] = []
    for index in range(0, len(rows), size):
        group = rows[index : index + size]
        best = Counter(row["best"] for row in group).most_common(1)[0][0]
        end = ends[index + len(group) - 1]
        if parts and parts[-1][2] == best:
            parts[-1] = (parts[-1][0], end, best)
        else:
            parts.append((group[0]["step"], end, best))
    return parts
