"""Rows of a run as numbers with tags, the ones that users of Stable-Baselines3 know."""

from __future__ import annotations

import math
from typing import Any

from p3s.runs.checksums import CHECKSUM

_METRIC_TAGS = {"value_loss": "train/critic_loss", "policy_loss": "train/actor_loss"}


def scalars_of(stream: str, row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row by their tags."""
    scalars: dict[str, Any] = {}
    if stream == "evaluations":
        scalars = {
            "eval/mean_reward": row["champion_return"],
            "eval/max_mean_reward": row["score"],
            "eval/population_mean_reward": row["mean"],
        }
        for learner, returns in enumerate(row["learner_returns"]):
            scalars[f"learner_{learner}/eval_reward"] = sum(returns) / len(returns)
    elif stream == "lineage":
        scalars = {
            f"population/{name}": row.get(name) for name in ("beta", "spread", "change", "best")
        }
    elif stream == "scalars":
        scalars = {tag: value for tag, value in row.items() if tag not in ("step", CHECKSUM)}
    else:
        scalars["time/fps"] = row["steps_per_second"]
        scalars["rollout/ep_rew_mean"] = _mean(row["recent_returns"])
        scalars["rollout/ep_len_mean"] = _mean([length for _, _, length in row["episodes"]])
        for learner, value in enumerate(row["recent_returns"]):
            scalars[f"learner_{learner}/ep_rew_mean"] = value
        for name, values in row["learners"].items():
            scalars[_METRIC_TAGS.get(name, f"train/{name}")] = _mean(values)
            for learner, value in enumerate(values):
                scalars[f"learner_{learner}/{name}"] = value
    return {tag: value for tag, value in scalars.items() if _is_known(value)}


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
