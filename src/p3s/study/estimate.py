"""How long a study takes, from what was measured; how much disk and memory its replays need.

    where runs of the study have recorded their speed     that speed, evaluations included
    else, for every combination of method and environment
        a short training: from the first update on, and anew after anything was compiled,
        time whole rounds of steps and updates
        seconds of a run = steps × seconds per step
                         + steps of all evaluations × seconds in the environment per step
    else                                                  unknown

Evaluation episodes count at full length: an upper bound where policies fall over early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

from jax import monitoring
from rich.console import Console
from rich.table import Table

from p3s.algorithms.off_policy import OffPolicy
from p3s.config.run import Config
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.experience import replay
from p3s.learning import devices
from p3s.machine import available_cores, core_shares
from p3s.report.formatting import count_text, duration_text
from p3s.runs.opening import spec_of
from p3s.runs.rows import read_intact_rows
from p3s.study.cells import Cell
from p3s.study.display import grid_table
from p3s.study.folder import StudyFolder
from p3s.train import Training
from p3s.types import EnvSpec

TIMED_SECONDS = 2.0
"""How long to time a training, after everything is compiled."""
LONGEST_TRAINING, LONGEST = 120.0, 300.0
"""Seconds after which a training, or all of them, are given up: what is left is unknown."""
QUICK_STEPS = 50
"""Steps after which learning begins in a training that is timed."""


def estimate(
    cells: list[Cell], folder: StudyFolder, jobs: int, calibrate: bool, console: Console
) -> Iterator[Table | str]:
    """Lines and tables about time, disk and memory; `calibrate` tells the time too."""
    together = min(jobs, len(cells))
    at_a_time = f"{count_text(together, 'run')} at a time"
    if calibrate:
        seconds, sources = cell_seconds(cells, folder, jobs, console)
        times = {name: duration_text(value) for name, value in seconds.items()}
        unknown = {cell.id: "unknown" for cell in cells}
        yield grid_table("time of one run", cells, {**unknown, **times})
        missing = len(cells) - len(seconds)
        more = f", and {count_text(missing, 'run')} of unknown length" if missing else ""
        total = duration_text(sum(seconds.values()) / together)
        yield f"time: about {total} with {at_a_time}{more}"
        yield "speeds: " + ", ".join(f"{count} {how}" for how, count in sources.items())
    firsts = {(cell.env.label, cell.method.label): cell.config for cell in cells}
    specs = {names: _spec(config) for names, config in firsts.items()}
    sizes = sorted(
        replay_bytes(cell.config, specs[cell.env.label, cell.method.label]) for cell in cells
    )
    yield f"disk: up to {sum(sizes) / 1e9:,.1f} GB of replay in checkpoints"
    largest = sum(sizes[-together:])
    yield f"memory: up to {largest / 1e9:,.1f} GB of replay with {at_a_time}"


def _spec(config: Config) -> EnvSpec:
    assert config.env is not None
    return spec_of(config, partial(make_env, config.env))


def replay_bytes(config: Config, spec: EnvSpec) -> int:
    """Size of a run's replay at its end, in memory and in a checkpoint."""
    if not isinstance(config.algorithm, OffPolicy):
        return 0
    rows = min(config.options.buffer_size, config.options.steps)
    algorithm, options = config.algorithm, config.options
    with_bags = not options.credit == options.hindsight == "none"
    return replay.memory_needed(
        rows, spec, algorithm.n_step, algorithm.normalize_rewards, with_bags
    )


def cell_seconds(
    cells: list[Cell], folder: StudyFolder, jobs: int, console: Console
) -> tuple[dict[str, float], Counter[str]]:
    """Seconds of every cell whose speed is known, by id; how many speeds come from where."""
    devices.prepare()
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.method.label, cell.env.label].append(cell)
    seconds: dict[str, float] = {}
    sources: Counter[str] = Counter()
    timed: dict[str, Pace | None] = {}
    until = time.perf_counter() + LONGEST
    with on_cores(core_shares(available_cores(), jobs)[0]):
        for (method, env), own in groups.items():
            found = [rate for cell in own if (rate := recorded_rate(folder, cell)) is not None]
            if found:
                seconds |= {cell.id: cell.config.options.steps * median(found) for cell in own}
                sources["from runs of this study"] += 1
                continue
            config = own[0].config
            kind = repr(_without_delay(config))
            if kind not in timed:
                with console.status(f"timing {method} on {env}"):
                    timed[kind] = pace_of(config, until)
            pace = timed[kind]
            sources["unknown" if pace is None else "timed on this machine"] += 1
            if pace is not None:
                seconds |= {cell.id: pace.seconds(cell.config) for cell in own}
    return seconds, sources


def _without_delay(config: Config) -> Config:
    """Paying rewards late takes no time."""
    assert config.env is not None
    options = dataclasses.replace(config.options, seed=0)
    env = dataclasses.replace(config.env, delay=None, note=None)
    return dataclasses.replace(config, env=env, options=options)


def recorded_rate(folder: StudyFolder, cell: Cell) -> float | None:
    """Seconds per step of a cell's own run from its first updates on, if it has come that far."""
    with contextlib.suppress(UserError):
        if not folder.differences(cell):
            rows, _ = read_intact_rows(folder.run(cell), "metrics")
            # The first row with updates has the time of their compilation.
            rows = [row for row in rows if row.get("updates") and row.get("seconds")]
            if len(rows) > 1 and rows[-1]["step"] > rows[0]["step"]:
                took = rows[-1]["seconds"] - rows[0]["seconds"]
                return took / (rows[-1]["step"] - rows[0]["step"])
    return None


# ---------------------------------------------------------------------- a short training


@dataclass(frozen=True)
class Pace:
    """How fast a training is without evaluations, and how many policies an evaluation plays."""

    step: float
    """Seconds per environment step, with its share of updates."""
    stepping: float
    """The part of it that the environment takes."""
    num_evaluated: int

    def seconds(self, config: Config) -> float:
        """Seconds of a whole run."""
        evaluations = evaluation_steps(config, self.num_evaluated)
        return config.options.steps * self.step + evaluations * self.stepping


def evaluation_steps(config: Config, num_evaluated: int) -> int:
    """Environment steps of all evaluations of a run if every episode has full length."""
    options, env = config.options, config.env
    if options.evaluation_period == 0:
        return 0
    # The champion and the chief's pick play once more, on fresh episodes.
    episodes = (num_evaluated + min(num_evaluated, 2)) * options.evaluation_episodes
    longest = (env.episode_length if env is not None else None) or 1000
    return -(-options.steps // options.evaluation_period) * episodes * longest


def pace_of(config: Config, until: float = float("inf")) -> Pace | None:
    """Time a short training; None if that takes too long, or lasts beyond `until`."""
    assert config.env is not None
    until = min(until, time.perf_counter() + LONGEST_TRAINING)
    if time.perf_counter() >= until:
        return None
    scheme, quick = config.scheme, {}
    for field in dataclasses.fields(scheme):
        if field.name in ("initial_steps", "random_steps"):
            quick[field.name] = min(getattr(scheme, "initial_steps", 0), QUICK_STEPS)
    scheme = dataclasses.replace(scheme, **quick)
    options = dataclasses.replace(config.options, steps=1 << 40, evaluation_period=0)
    config = dataclasses.replace(config, scheme=scheme, options=options)
    assert config.env is not None
    training = Training(config, partial(make_env, config.env))
    with contextlib.closing(training), Stopwatch(until) as watch:
        training.run(options.steps, watch.see)
        return watch.result and Pace(*watch.result, len(training.crew.champions()))


class Stopwatch:
    """Times a training from an update to a later one; begins anew after any compilation."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._compiled = False
        self._start: tuple[float, int, float] | None = None
        self._seen, self._updated = (0, 0), False
        self.result: tuple[float, float] | None = None
        """Seconds per environment step, in all and in the environment alone."""

    def __enter__(self) -> Stopwatch:
        monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        monitoring.unregister_event_duration_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self._compiled = self._compiled or event.startswith("/jax/core/compile")

    def see(self, training: Training) -> bool:
        """Look at a training after a step, or after updates between two steps; False: enough."""
        now, counters = time.perf_counter(), training.counters
        stepped = counters.total_steps > self._seen[0]
        updated = counters.updates > self._seen[1]
        # Between two such moments lie whole rounds, if steps and updates take turns.
        round_begins = updated and (stepped or not self._updated)
        self._seen, self._updated = (counters.total_steps, counters.updates), updated
        if self._compiled:
            self._compiled, self._start = False, None
        elif round_begins:
            here = now, counters.total_steps, training.crew.stepping_seconds
            self._start = self._start or here
            took, steps, stepping = (
                end - start for end, start in zip(here, self._start, strict=True)
            )
            if took >= TIMED_SECONDS and steps:
                self.result = took / steps, stepping / steps
                return False
        return now < self._until


@contextlib.contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
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
