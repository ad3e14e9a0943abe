"""Estimate how long a study takes on this machine, and how much disk and memory it needs.

    for every environment: make it, and time random steps
    for every combination of scheme, algorithm and sizes: time a short training, after compilation
    seconds of a cell = steps × (training step + environment step)
                      + evaluations × episodes × longest episode × environment step

Evaluation episodes count at full length: an upper bound where policies fall over early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from p3s.algorithms.off_policy import OffPolicy
from p3s.config import Config
from p3s.envs import Adapter, EnvName, adapted, make_env
from p3s.experience import replay
from p3s.learning import devices
from p3s.report.formatting import count_text
from p3s.schemes.base import EpisodeScheme
from p3s.study.cells import Cell
from p3s.study.display import brief, duration
from p3s.train import Training
from p3s.types import EnvSpec
from p3s.worker_process import available_cores, core_shares

ENVIRONMENT_SECONDS = 0.3
TRAINING_SECONDS = 2.0
"""Roughly how long to time an environment and a training."""
LONGEST_TRAINING_SECONDS = 120.0
"""When to give up: a program that takes longer to compile leaves the time unknown."""
COMPILING = 5.0
"""A lap that takes this many times the median has compiled something."""
ENOUGH_LAPS = 6
QUICK_STEPS = 50
QUICK: dict[str, Callable[[Any], Any]] = {
    "initial_steps": lambda steps: min(steps, QUICK_STEPS),
    "review_period": lambda steps: min(steps, QUICK_STEPS),
    "random_steps": lambda steps: "initial_steps",
}
"""Changes to a scheme's fields that let learning start at once."""


@dataclass(frozen=True)
class EnvironmentCost:
    """The sizes of an environment and the time of its steps."""

    spec: EnvSpec
    longest_episode: int
    step_seconds: float


def estimate(
    cells: list[Cell], jobs: int, calibrate: bool, console: Console
) -> Iterator[Table | str]:
    """Lines and tables about time, disk and memory; `calibrate` times short trainings first."""
    costs = {
        name: environment_cost(cell.config.env, ENVIRONMENT_SECONDS if calibrate else 0.0)
        for name, cell in {cell.env.label: cell for cell in cells}.items()
        if cell.config.env is not None
    }
    together = min(jobs, len(cells))
    at_a_time = f"{count_text(together, 'run')} at a time"
    if calibrate:
        with _on_cores(core_shares(available_cores(), jobs)[0]):
            seconds = cell_seconds(cells, costs, console)
        times = {
            name: "unknown" if math.isnan(value) else brief(value)
            for name, value in seconds.items()
        }
        yield grid_table("time of one run", cells, times)
        known = sum(value for value in seconds.values() if not math.isnan(value))
        missing = sum(math.isnan(value) for value in seconds.values())
        beside = f", and {count_text(missing, 'run')} of unknown length" if missing else ""
        yield f"time: about {duration(known / together)} with {at_a_time} on this machine{beside}"
    sizes = sorted(replay_bytes(cell.config, costs[cell.env.label].spec) for cell in cells)
    yield f"disk: up to {sum(sizes) / 1e9:,.1f} GB of replay in checkpoints"
    largest = sum(sizes[-together:])
    yield f"memory: up to {largest / 1e9:,.1f} GB of replay with {at_a_time}"


def replay_bytes(config: Config, spec: EnvSpec) -> int:
    """Size of a run's replay at its end, in memory and in a checkpoint."""
    if not isinstance(config.algorithm, OffPolicy):
        return 0
    rows = min(config.options.buffer_size, config.options.steps)
    algorithm = config.algorithm
    return replay.memory_needed(rows, spec, algorithm.n_step, algorithm.normalize_rewards)


def environment_cost(name: EnvName, seconds: float) -> EnvironmentCost:
    """An environment's sizes, and the time of a random step measured over `seconds`."""
    env = adapted(partial(make_env, name))()
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
        _, _, terminated, truncated, _ = env.step(env.sample_action(env.action_space))
        steps += 1
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - started) / steps


def cell_seconds(
    cells: list[Cell], costs: dict[str, EnvironmentCost], console: Console
) -> dict[str, float]:
    """Estimated seconds of every cell by id, from one short training of each kind."""
    devices.prepare()
    measured: dict[Any, TrainingCost] = {}
    seconds = {}
    for cell in cells:
        env, config = costs[cell.env.label], cell.config
        kind = _kind(config, env.spec)
        if kind not in measured:
            with console.status(f"timing {cell.method.label} on {cell.env.label}"):
                measured[kind] = training_cost(config, env)
        step = measured[kind].step_seconds + env.step_seconds
        evaluations = evaluation_steps(config, measured[kind].num_evaluated, env.longest_episode)
        seconds[cell.id] = config.options.steps * step + evaluations * env.step_seconds
    return seconds


SIZES = (
    "num_copies", "updates_per_step", "hidden_sizes", "policy_hidden_sizes", "batch_size",
    "num_values", "network", "n_step", "precision",
)  # fmt: skip
"""Fields that decide how long a training step takes."""


def _kind(config: Config, spec: EnvSpec) -> Any:
    """What decides how long a training step takes, but for the environment's own time."""
    scheme, algorithm, shape = config.scheme, config.algorithm, spec.observation.shape
    sizes = [getattr(scheme, name, None) or getattr(algorithm, name, None) for name in SIZES]
    image = shape if len(shape) > 1 else None
    return (scheme.name, algorithm.name, scheme.num_learners, image, *sizes)


def evaluation_steps(config: Config, num_evaluated: int, longest_episode: int) -> int:
    """Environment steps of all evaluations of a run if every episode has full length."""
    options = config.options
    if options.evaluation_period == 0:
        return 0
    # The champion and the chief's pick play once more, on fresh episodes.
    episodes = (num_evaluated + min(num_evaluated, 2)) * options.evaluation_episodes
    return -(-options.steps // options.evaluation_period) * episodes * longest_episode


# ---------------------------------------------------------------------- a short training


@dataclass(frozen=True)
class TrainingCost:
    """Seconds of training per environment step, without the environment itself."""

    step_seconds: float
    num_evaluated: int
    """Number of policies that an evaluation plays."""


class Lap(NamedTuple):
    """The time between two calls of the training's callback, with the steps and updates in it."""

    seconds: float
    steps: int
    updates: int


def training_cost(config: Config, env: EnvironmentCost) -> TrainingCost:
    """Time a short training without evaluations; NaN if it took too long to begin."""
    quick = {
        field.name: QUICK[field.name](getattr(config.scheme, field.name))
        for field in dataclasses.fields(config.scheme)
        if field.name in QUICK
    }
    scheme = dataclasses.replace(config.scheme, **quick)
    options = dataclasses.replace(config.options, steps=1 << 40, evaluation_period=0)
    config = dataclasses.replace(config, scheme=scheme, options=options)
    assert config.env is not None
    training = Training(config, partial(make_env, config.env))
    try:
        laps = _laps(training)
        per_round = scheme.updates_per_step if isinstance(scheme, EpisodeScheme) else None
        seconds = seconds_per_step(laps, per_round) - env.step_seconds
        num_evaluated = len(training.champions())
        return TrainingCost(seconds if math.isnan(seconds) else max(seconds, 0.0), num_evaluated)
    finally:
        training.close()


def _laps(training: Training) -> list[Lap]:
    """Laps of a training, until enough of them include updates."""
    laps: list[Lap] = []
    then = began = time.perf_counter()
    seen = (0, 0)

    def go_on(now: Training) -> bool:
        nonlocal then, seen
        moment, counts = time.perf_counter(), (now.counters.total_steps, now.counters.updates)
        laps.append(Lap(moment - then, counts[0] - seen[0], counts[1] - seen[1]))
        then, seen = moment, counts
        if moment - began > LONGEST_TRAINING_SECONDS:
            return False
        updating = without_compilation([lap for lap in laps if lap.updates])
        learned = sum(updating) > TRAINING_SECONDS / 2 and len(updating) >= ENOUGH_LAPS
        past_reviews = now.counters.time_step > 2 * QUICK_STEPS + 20
        return not (laps[-1].updates and learned and past_reviews)

    training.run(training.options.steps, go_on)
    return laps


def seconds_per_step(laps: list[Lap], updates_per_step: int | None) -> float:
    """Seconds of one environment step with its share of updates, without compilation.

    updates_per_step: the updates due per step in a scheme that makes them after whole episodes;
    None in a scheme that makes them as it steps.
    """
    updating = [lap for lap in laps if lap.updates]
    if len(without_compilation(updating)) < ENOUGH_LAPS:
        return math.nan
    if updates_per_step is not None:
        stepping = [lap for lap in laps if lap.steps]
        steps = sum(lap.steps for lap in stepping) / len(stepping)
        return mean(without_compilation(stepping)) / steps + updates_per_step * mean(
            without_compilation(updating)
        )
    after = laps[laps.index(updating[0]) + 1 :]
    kinds = [lap for lap in after if not lap.updates], [lap for lap in after if lap.updates]
    seconds = sum(len(own) * mean(without_compilation(own)) for own in kinds if own)
    return seconds / sum(lap.steps for lap in after)


def without_compilation(laps: list[Lap]) -> list[float]:
    """Seconds of the laps in which nothing was compiled.

    Half of the laps may have: fewer laps than that say nothing.
    """
    seconds = [lap.seconds for lap in laps]
    return [own for own in seconds if own <= COMPILING * median(seconds)]


def grid_table(title: str, cells: list[Cell], values: dict[str, str]) -> Table:
    """Environments by methods, with the value of each cell by id.

    Steps have a column of their own where environments differ in them.
    """
    table = Table("environment", box=None, pad_edge=False, title=title, title_justify="left")
    methods = list(dict.fromkeys(cell.method.label for cell in cells))
    steps = {cell.env.label: cell.config.options.steps for cell in cells}
    differ = len(set(steps.values())) > 1
    if differ:
        table.add_column("steps", justify="right")
    for method in methods:
        table.add_column(escape(method), justify="right", overflow="fold")
    shown = {(cell.method.label, cell.env.label): values[cell.id] for cell in cells}
    for env, number in steps.items():
        own = [f"{number:,}"] if differ else []
        table.add_row(escape(env), *own, *(shown.get((method, env), "-") for method in methods))
    return table


@contextlib.contextmanager
def _on_cores(cores: list[int]) -> Iterator[None]:
    """Pin this thread, and the threads it starts, to the cores that a run will have."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
