"""How long a study would take on this machine, and how large it would be.

    for every environment: make it, and step it at random for a moment
    for every scheme, algorithm and size: train for a moment, after compilation
    seconds of a cell = steps × (a step as measured, with this environment in it)
                      + evaluations × episodes × longest episode × this environment's step

Evaluated episodes are counted at full length: an upper bound where policies fall over early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from p3s import devices, replay
from p3s.config import Config
from p3s.envs import Adapter, EnvName, make_env
from p3s.study.cells import Cell
from p3s.study.display import duration
from p3s.study.scheduler import available_cores, core_shares
from p3s.train import Training
from p3s.types import EnvSpec

ENVIRONMENT_SECONDS = 0.3
WARM_UP_STEPS = 120
"""Time steps that include the first updates and reviews, and with them all compilation."""
TRAINING_SECONDS = 2.0
LONGEST_TRAINING_SECONDS = 15.0
"""When to give up waiting for an update, where updates come after whole episodes."""
QUICK = {"initial_steps": 50, "review_period": 50, "random_until": "initial_steps"}
"""Scheme fields for a measurement that comes to the point; smaller values stay."""


@dataclass(frozen=True)
class EnvironmentCost:
    """What an environment takes."""

    spec: EnvSpec
    longest_episode: int
    step_seconds: float


def estimate(
    cells: list[Cell], jobs: int, calibrate: bool, console: Console
) -> Iterator[Table | str]:
    """What to print about time, disk and memory; `calibrate` measures for some seconds."""
    costs = {
        name: environment_cost(cell.config.env, ENVIRONMENT_SECONDS if calibrate else 0.0)
        for name, cell in {cell.env.label: cell for cell in cells}.items()
        if cell.config.env is not None
    }
    together = min(jobs, len(cells))
    if calibrate:
        with _on_cores(core_shares(available_cores(), jobs)[0]):
            seconds = cell_seconds(cells, costs, console)
        times = {name: duration(value) for name, value in seconds.items()}
        yield grid_table("time of one run", cells, times)
        total = sum(seconds.values())
        yield f"time: about {duration(total / together)} with {together} at a time on this machine"
    sizes = sorted(replay_bytes(cell.config, costs[cell.env.label].spec) for cell in cells)
    yield f"disk: up to {sum(sizes) / 1e9:,.1f} GB of replay in checkpoints"
    largest = sum(sizes[-together:])
    yield f"memory: up to {largest / 1e9:,.1f} GB of replay with {together} at a time"


def replay_bytes(config: Config, spec: EnvSpec) -> int:
    """What the replay of a run takes at its end, in memory and in a checkpoint."""
    rows = min(config.options.buffer_size, config.options.steps)
    return replay.memory_needed(rows, spec)


def environment_cost(name: EnvName, seconds: float) -> EnvironmentCost:
    """An environment's sizes, and the time of a random step if there are seconds to measure it."""
    env = make_env(name)
    try:
        limit = env.env.spec.max_episode_steps if env.env.spec is not None else None
        step_seconds = _random_step_seconds(env, seconds) if seconds > 0 else 0.0
        return EnvironmentCost(env.env_spec, limit or 1000, step_seconds)
    finally:
        env.close()


def _random_step_seconds(env: Adapter, seconds: float) -> float:
    env.reset(seed=0)
    env.action_space.seed(0)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - started) / steps


def cell_seconds(
    cells: list[Cell], costs: dict[str, EnvironmentCost], console: Console
) -> dict[str, float]:
    """Seconds of every cell, by id, from one short training of each kind."""
    devices.prepare()
    measured: dict[Any, float] = {}
    seconds = {}
    for cell in cells:
        cost, config = costs[cell.env.label], cell.config
        kind = _kind(config)
        if kind not in measured:
            with console.status(f"trying {cell.method.label} on {cell.env.label}"):
                measured[kind] = training_step_seconds(config) - cost.step_seconds
        step = max(measured[kind], 0.0) + cost.step_seconds
        seconds[cell.id] = config.options.steps * step + evaluation_seconds(config, cost)
    return seconds


def _kind(config: Config) -> Any:
    """What decides how long a step of training takes, besides the environment."""
    scheme, algorithm = config.scheme, config.algorithm
    sizes = [getattr(algorithm, name, None) for name in ("hidden_sizes", "batch_size")]
    return (scheme.name, algorithm.name, scheme.num_learners, scheme.num_updates, *sizes)


def evaluation_seconds(config: Config, cost: EnvironmentCost) -> float:
    """All evaluations of a run, were every episode to go to its limit."""
    options, scheme = config.options, config.scheme
    if options.evaluation_period == 0:
        return 0.0
    # Each learner, what is evaluated beside them, and the champion once more.
    policies = scheme.num_trained + len(scheme.extra_champions) + 1
    steps = policies * options.evaluation_episodes * cost.longest_episode
    return -(-options.steps // options.evaluation_period) * steps * cost.step_seconds


def training_step_seconds(config: Config) -> float:
    """Seconds of one environment step of training with its updates, without evaluations."""
    quick = {
        field.name: min(getattr(config.scheme, field.name), QUICK[field.name])
        for field in dataclasses.fields(config.scheme)
        if field.name in QUICK
    }
    options = dataclasses.replace(
        config.options,
        steps=1 << 40,
        evaluation_period=0,
        checkpoint_period=0,
        buffer_size=min(config.options.buffer_size, 20_000),
    )
    config = dataclasses.replace(
        config, scheme=dataclasses.replace(config.scheme, **quick), options=options
    )
    assert config.env is not None
    training = Training(config, partial(make_env, config.env))
    try:
        training.run(options.steps, lambda now: now.time_step < WARM_UP_STEPS)
        steps, updates, started = training.total_steps, training.updates, time.perf_counter()

        def go_on(now: Training) -> bool:
            elapsed = time.perf_counter() - started
            waiting = now.updates == updates and elapsed < LONGEST_TRAINING_SECONDS
            return elapsed < TRAINING_SECONDS or waiting

        training.run(options.steps, go_on)
        return (time.perf_counter() - started) / (training.total_steps - steps)
    finally:
        training.close()


def grid_table(title: str, cells: list[Cell], values: dict[str, str]) -> Table:
    """A value of each environment and method, by the ids of the cells."""
    table = Table("environment", box=None, pad_edge=False, title=title, title_justify="left")
    methods = list(dict.fromkeys(cell.method.label for cell in cells))
    for method in methods:
        table.add_column(escape(method), justify="right", overflow="fold")
    shown = {(cell.method.label, cell.env.label): values[cell.id] for cell in cells}
    for env in dict.fromkeys(cell.env.label for cell in cells):
        table.add_row(escape(env), *(shown.get((method, env), "-") for method in methods))
    return table


@contextlib.contextmanager
def _on_cores(cores: list[int]) -> Iterator[None]:
    """Keep this thread, and those that it starts, to the cores that a run will have."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
