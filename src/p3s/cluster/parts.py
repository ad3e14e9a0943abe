"""What shards say of their parts of a population, put together and taken apart again.

Joined, the parts of a checkpoint are those of an unsplit run.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from p3s.envs.copies import join_snapshots, split_snapshot

Snapshot = dict[str, dict[str, Any]]


def join_reports(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One report on all learners; what has no learner axis is the same in all of them."""
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves) if np.ndim(leaves[0]) else leaves[0], *reports
    )


def join_windows(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """The metrics of all learners; their counts are the same in all shards."""
    sums = {
        name: [value for window in windows for value in window["sums"][name]]
        for name in windows[0]["sums"]
    }
    return {"sums": sums, "counts": windows[0]["counts"]}


def join_parts(parts: list[Snapshot], stacked: tuple[str, ...]) -> Snapshot:
    """The snapshots of all shards as one; stacked: fields of the state with a learner axis."""
    state = {
        name: np.concatenate([part["state"][name] for part in parts])
        if name.split("/")[0] in stacked
        else leaf
        for name, leaf in parts[0]["state"].items()
    }
    return {
        "environments": join_snapshots([part["environments"] for part in parts]),
        "state": state,
        "metrics": join_windows([part["metrics"] for part in parts]),
        "normalizer": parts[0]["normalizer"],
        "experience": parts[0]["experience"],
        "outbox": {
            "rows": np.concatenate([part["outbox"]["rows"] for part in parts], axis=1),
            "uncounted": parts[0]["outbox"]["uncounted"],
        },
    }


def split_parts(whole: Snapshot, parts: list[range], stacked: tuple[str, ...]) -> list[Snapshot]:
    """The inverse: a snapshot for each shard."""
    rows = whole["outbox"]["rows"]
    each = rows.shape[1] // parts[-1].stop
    copies = [range(part.start * each, part.stop * each) for part in parts]
    environments = split_snapshot(whole["environments"], copies)
    split: list[Snapshot] = []
    for part, own_copies, own_environments in zip(parts, copies, environments, strict=True):
        own = slice(part.start, part.stop)
        state = {
            name: leaf[own] if name.split("/")[0] in stacked else leaf
            for name, leaf in whole["state"].items()
        }
        sums = {name: values[own] for name, values in whole["metrics"]["sums"].items()}
        counts = whole["metrics"]["counts"]
        split.append(
            {
                "counters": whole["counters"],
                "environments": own_environments,
                "state": state,
                "metrics": {"sums": sums, "counts": counts, "episodes": []},
                "normalizer": whole["normalizer"],
                "experience": whole["experience"],
                "outbox": {**whole["outbox"], "rows": rows[:, own_copies.start : own_copies.stop]},
            }
        )
    return split
