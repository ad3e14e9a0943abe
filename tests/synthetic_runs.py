"""Run folders with made-up curves: quick to write, and of the shape that trainings leave."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from p3s.config.run import resolve

PAPER = {
    ("P3S-TD3", "Hopper-v1"): 3705.92, ("TD3", "Hopper-v1"): 2555.85,
    ("P3S-TD3", "Walker2d-v1"): 4953.00, ("TD3", "Walker2d-v1"): 4455.51,
    ("P3S-TD3", "HalfCheetah-v1"): 11961.44, ("TD3", "HalfCheetah-v1"): 9695.92,
    ("P3S-TD3", "Ant-v1"): 5339.66, ("TD3", "Ant-v1"): 3760.50,
    ("P3S-TD3", "Delayed Ant-v1"): 724.50, ("TD3", "Delayed Ant-v1"): -7.45,
}  # fmt: skip
"""Some of the paper's scores (Tables 2 and 3)."""

SCHEMES = {"P3S-TD3": "p3s", "ESO-TD3": "sharing", "Re-TD3": "resetting", "DRL-TD3": "distributed",
           "TD3": "single"}  # fmt: skip
METHODS, ENVS = ("P3S-TD3", "TD3"), ("Hopper-v1", "Ant-v1")
"""Of the small study that most tests of reports read."""
ORIGIN = {
    "versions": {"python": "3.11.7", "p3s": "0.1.0", "jax": "0.10.2", "mujoco": "3.17.0"},
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
}


def write_run(
    path: Path, method: str, env: str, seed: int, evaluations: int = 50, **fields: Any
) -> None:
    """One run folder; the same arguments give the same folder."""
    scheme = SCHEMES[method]
    period = fields.pop("evaluation_period", 4000)
    config = resolve(env, scheme, seed=seed, steps=period * evaluations, **fields)
    rng = np.random.default_rng([seed, *f"{method} {env}".encode()])
    learners = 1 if scheme in ("single", "distributed") else config.scheme.num_learners
    rows = _evaluations(method, env, period, evaluations, learners, rng)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({**config.to_json(), **ORIGIN}))
    write_rows(path / "evaluations.jsonl", rows)
    if learners > 1:
        write_rows(path / "lineage.jsonl", _lineage(scheme, rows[-1]["step"], learners, rng))


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _evaluations(
    method: str, env: str, period: int, count: int, learners: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    top = PAPER.get(("P3S-TD3", env), 1500.0)
    rank = list(SCHEMES).index(method)
    end = top * (1.02 - 0.09 * rank) * rng.normal(1.0, 0.08)
    speed = (0.22 + 0.06 * rank) * rng.uniform(0.8, 1.25)
    rows, wander = [], np.zeros(learners)
    for index in range(1, count + 1):
        part = index / count
        wander = 0.85 * wander + rng.normal(0.0, 0.03 * top, learners)
        level = end * (1 - math.exp(-part / speed)) / (1 - math.exp(-1 / speed)) + wander
        returns = level[:, None] + rng.normal(0.0, 0.04 * top, (learners, 10))
        means = returns.mean(axis=1)
        rows.append(
            {
                "step": index * period,
                "updates": index * period,
                "learner_returns": returns.round(3).tolist(),
                "score": float(means.max()),
                "mean": float(means.mean()),
                "champion": int(level.argmax()),
                "champion_return": float(level.max() + rng.normal(0.0, 0.013 * top)),
                "seconds": round(
                    index * period * (0.011 + 0.002 * rank) * rng.uniform(0.97, 1.03), 2
                ),
            }
        )
    return rows


def _lineage(
    scheme: str, steps: int, learners: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    rows, best, beta = [], 0, 1.0
    for step in range(2000, steps + 1, 1000):
        if rng.random() < 0.06:
            best = int(rng.integers(learners))
        row: dict[str, Any] = {"step": step, "best": best, "recent_returns": [0.0] * learners}
        if scheme == "p3s":
            change = float(0.02 * rng.lognormal(0.0, 0.4))
            spread = float(max(2 * change, 0.05) * rng.lognormal(0.0, 0.6))
            beta *= float(rng.choice([0.5, 1.0, 2.0], p=[0.26, 0.5, 0.24]))
            row |= {"beta": beta, "spread": spread, "change": change}
        rows.append(row)
    return rows


def write_study(
    folder: Path,
    methods: Iterable[str],
    envs: Iterable[str],
    seeds: int,
    evaluations: int = 50,
    title: str = "A made-up study",
) -> Path:
    """A study folder with every method on every environment."""
    cells = []
    for env in envs:
        for method in methods:
            for seed in range(seeds):
                name = f"{method}-{env.replace(' ', '-')}-{seed}".lower()
                write_run(folder / "runs" / name, method, env, seed, evaluations)
                cells.append(
                    {"id": name, "run": f"runs/{name}", "method": method, "env": env,
                     "seed": seed, "paper": PAPER.get((method, env))}
                )  # fmt: skip
    study = {"study": "made-up", "title": title, "steps": 4000 * evaluations, "cells": cells}
    (folder / "cells.json").write_text(json.dumps(study))
    (folder / "failures").mkdir()
    return folder
