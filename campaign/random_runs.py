"""Runs and studies drawn at random: small, and together they use everything."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import record

from campaign.processes import Command
from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.machine import require_optuna
from p3s.schemes import SCHEMES
from p3s.tuning.storage import open_storage
from p3s.tuning.workers import MOST_DEATHS

optuna = require_optuna()

ENVIRONMENTS = {
    "continuous": (["InvertedPendulum-v5"], ["Pendulum-v1"], ["Pendulum-v1", "--delay", "7"]),
    "discrete": (["CartPole-v1"], ["Acrobot-v1"]),
}
PRESETS = ("recommended", "paper", "authors")
STEPS = 3000
FIELDS: dict[str, Any] = {
    "steps": STEPS,
    "hidden_sizes": (16,),
    "batch_size": 8,
    "initial_steps": 20,
    "review_period": 25,
    "buffer_size": 1000,
    "evaluation_period": 500,
    "evaluation_episodes": 1,
    "metrics_period": 100,
    "checkpoint_period": 150,
    "rollout_steps": 64,
    "minibatch_size": 32,
    "num_learners": 3,
}
"""As far as a scheme and an algorithm have them."""
SHARDS = {"shards": 2, "exchange_period": 5}
SHARDED = 0.3
"""Share of the runs that are split, where their scheme can be."""


@dataclass(frozen=True)
class RandomRun:
    """A run or a study, and how to begin and resume it."""

    name: str
    folder: Path
    arguments: tuple[str, ...]
    workers: tuple[str, ...] = ()
    """Options of worker processes, which the undisturbed run goes without."""

    own_name, workers_name = "runs", "workers of runs"
    codes_without_worker = (2,)
    """Exit codes of a run whose worker was killed."""
    most_kills = 9
    progress = ("checkpoints/step-*", "runs/*/checkpoints/step-*")
    """Where its checkpoints are."""

    def __str__(self) -> str:
        return self.name

    def first(self, path: Path) -> list[str]:
        """The command that begins it."""
        workers = self.workers if path.name == "parts" else ()
        return ["train", *self.arguments, *workers, "--no-report", "--out", str(path)]

    def again(self, path: Path) -> list[str]:
        """The command that continues it."""
        return ["resume", str(path), "--no-report"]

    def has_begun(self, path: Path) -> bool:
        """Whether there is something to continue."""
        return (path / "config.json").exists()

    def record(self, path: Path) -> dict[str, Any]:
        """Everything that it wrote, less times."""
        return record(path)

    def _progress(self, path: Path) -> set[str]:
        # Not **: folders come and go while a run writes.
        return {str(found) for pattern in self.progress for found in path.glob(pattern)}

    def wait_for_progress(self, path: Path, command: Command) -> None:
        """Wait for a new checkpoint, or the end."""
        before = self._progress(path)
        while command.alive() and self._progress(path) <= before:
            time.sleep(0.01)


class ShardedRun(RandomRun):
    """A run whose learners live in shards."""

    own_name = "runs in shards"


class RandomStudy(RandomRun):
    """A study of two cells."""

    own_name, workers_name = "studies", "workers of studies"
    codes_without_worker = (1,)

    def first(self, path: Path) -> list[str]:
        return ["study", "run", str(self.folder / "mine.toml"), "--out", str(path), "--jobs", "2"]

    def again(self, path: Path) -> list[str]:
        return ["study", "run", str(path), "--jobs", "2", "--retry-failed"]

    def has_begun(self, path: Path) -> bool:
        return (path / "cells.json").exists()

    def record(self, path: Path) -> dict[str, Any]:
        return {run.name: record(run) for run in sorted((path / "runs").iterdir())}


class RandomTuning(RandomRun):
    """A search of two trials at a time."""

    own_name, workers_name = "tunings", "trials of tunings"
    codes_without_worker = ()
    most_kills = MOST_DEATHS - 1
    """A trial that loses more processes has failed, and another takes its place."""
    progress = ("trials/*/*/checkpoints/step-*",)

    def first(self, path: Path) -> list[str]:
        return ["tune", *self.arguments, "--out", str(path)]

    def again(self, path: Path) -> list[str]:
        return self.first(path)

    def record(self, path: Path) -> dict[str, Any]:
        storage = open_storage(str(path / "journal.log"))
        (name,) = optuna.get_all_study_names(storage)
        trials = optuna.load_study(study_name=name, storage=storage).trials
        runs = sorted(path.glob("trials/*/*"))
        return {
            **{f"{run.parent.name}/{run.name}": record(run) for run in runs},
            **{f"{t.number}": (t.state.name, t.params, t.values) for t in trials},
        }


def draw_run(number: int, rng: random.Random, folder: Path) -> RandomRun:
    """A run; every scheme comes in turn."""
    folder.mkdir()
    scheme = sorted(SCHEMES)[number % len(SCHEMES)]
    while True:
        algorithm, preset = rng.choice(sorted(ALGORITHMS)), rng.choice(PRESETS)
        kinds = ALGORITHMS[algorithm].actions
        kind = rng.choice(("continuous", "discrete")) if kinds == "both" else kinds
        env = rng.choice(ENVIRONMENTS[kind])
        split = SHARDS if rng.random() < SHARDED and SCHEMES[scheme].can_be_split else {}
        fields = fitting_fields(env[0], scheme, algorithm, preset, **split)
        if fields is not None:
            break
    method = [*env, "--scheme", scheme, "--algorithm", algorithm, "--preset", preset]
    workers = rng.choice(
        [(), ("--env-workers", "2"), ("--evaluation-workers", "1"),
         ("--env-workers", "1", "--evaluation-workers", "1")]
    )  # fmt: skip
    split = ("--shards", str(fields["shards"])) if "shards" in fields else ()
    workers = () if split else workers  # a shard plays its own episodes
    arguments = (*method, "--seed", str(number), *as_options(fields))
    name = " ".join((*method, *workers, *split))
    return (ShardedRun if split else RandomRun)(name, folder, arguments, workers)


def plain_run(folder: Path) -> RandomRun:
    """Always the same short run."""
    folder.mkdir()
    method = ("Pendulum-v1", "--scheme", "p3s", "--algorithm", "td3", "--preset", "paper")
    fields = fitting_fields("Pendulum-v1", "p3s", "td3", "paper")
    assert fields is not None
    options = as_options({**fields, "steps": 2000})
    return RandomRun(" ".join(method), folder, (*method, *options))


def fitting_fields(
    env: str, scheme: str, algorithm: str, preset: str, **more: Any
) -> dict[str, Any] | None:
    """The fields that these two have; None if they do not go together."""
    fields = {**FIELDS, **more}
    while True:
        try:
            resolve(env, scheme, algorithm, preset, **fields).check()
        except UserError as error:
            if error.field not in fields:
                return None
            del fields[error.field]
        else:
            return fields


def as_options(fields: dict[str, Any]) -> list[str]:
    """Fields as words of a command line."""
    words = []
    for name, value in fields.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


def draw_study(number: int, rng: random.Random, folder: Path) -> RandomStudy:
    """A study of two schemes."""
    folder.mkdir()
    schemes = rng.sample(["p3s", "sharing", "single", "resetting"], 2)
    fields = fitting_fields("Pendulum-v1", "single", "td3", "paper")
    assert fields is not None
    del fields["steps"]
    lines = [f"steps = {STEPS}", "seeds = 1", 'environments = ["Pendulum-v1"]', "[fields]"]
    for name, value in fields.items():
        lines.append(f"{name} = {list(value) if isinstance(value, tuple) else value}")
    lines += ["[grid]", f"scheme = {json.dumps(schemes)}"]
    (folder / "mine.toml").write_text("\n".join(lines) + "\n")
    return RandomStudy(f"study of {' and '.join(schemes)}", folder, ())


def draw_tuning(number: int, rng: random.Random, folder: Path) -> RandomTuning:
    """A search of a learning rate, over one seed or two."""
    folder.mkdir()
    scheme, seeds = rng.choice(("p3s", "sharing", "single")), str(rng.choice((1, 2)))
    fields = fitting_fields("Pendulum-v1", scheme, "td3", "paper")
    assert fields is not None
    method = ("Pendulum-v1", "--scheme", scheme, "--algorithm", "td3", "--preset", "paper")
    search = ("--search", "learning_rate", "--trials", "3", "--jobs", "2", "--seeds", seeds)
    options = (*search, "--no-calibrate", "--seed", str(number), *as_options(fields))
    return RandomTuning(f"search of {scheme}, seeds {seeds}", folder, (*method, *options))
