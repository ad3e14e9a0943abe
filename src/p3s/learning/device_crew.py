"""A crew whose environments and replay live on the device: it plays whole stretches as one program.

    play, until the next stop
        plan a stretch       random actions, places of minibatches: all that follows from numbers
        run it               learning/stretch.py
        meanwhile            plan the next one
        read                 episodes, metrics, and what is not finite

A stretch ends at a stop of the loop, at a review, or where the user would wait too long for a stop.
Where it ends has no influence on results.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import jax
import numpy as np

from p3s.algorithms.off_policy import OffPolicy
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.envs.device_copies import DeviceCopies
from p3s.errors import TrainingStopped, UserError, note
from p3s.experience.data import Data
from p3s.experience.device_replay import LARGEST, DeviceReplay
from p3s.experience.normalization import NoNormalizer
from p3s.experience.replay import memory_needed
from p3s.learning.crew import Crew, Played
from p3s.learning.rhythm import EveryStep
from p3s.learning.stretch import (
    BAD_ACTION,
    BAD_OBSERVATION,
    BAD_REWARD,
    Keys,
    Moving,
    Plan,
    Told,
    stretch_of,
)
from p3s.types import EnvSpec, Episode

LONGEST = 128
"""Time steps of a stretch at most."""
PLAN_BYTES = 1 << 22
"""About the size of a stretch's plan at most: it goes to the device for every stretch."""
PATIENCE = 0.5
"""Seconds that a stretch should not take much longer than: signals wait for its end."""
BAD = {
    BAD_ACTION: "action of learner {}",
    BAD_OBSERVATION: "observation of learner {}'s environment",
    BAD_REWARD: "reward of learner {}'s environment",
}


class Planned(NamedTuple):
    """A stretch to come, and what the host has to know of it."""

    plan: Plan
    first_step: int
    num_steps: int
    kinds: np.ndarray
    """Whether its updates include a policy step, (updates,)."""
    review: bool


class DeviceCrew(Crew):
    """Learners of a population, all of them, with environments and replay on one device."""

    stride = 32
    environments: DeviceCopies  # type: ignore[reportIncompatibleVariableOverride]
    experience: DeviceReplay  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, config: Config, make: Callable[[], Adapter], spec: EnvSpec, overlap: bool = True
    ) -> None:
        one_device = dataclasses.replace(config.options, devices=1)
        super().__init__(dataclasses.replace(config, options=one_device), make, spec, None, overlap)
        program, environments = self.updater.program, self.environments
        self.stretch = stretch_of(self.scheme, spec, environments.simulation)
        self._keys = Keys(program.act_key, program.learn_key, environments.key)
        assert isinstance(self.scheme.algorithm, OffPolicy)
        self._batch_size = self.scheme.algorithm.batch_size
        self._longest, self._most_updates = self._sizes()
        self._device = program.mesh.devices[0]
        self._no_drawn = self._drawn(0, 0)
        self._steps_now = min(16, self._longest)

    def _make_experience(
        self, config: Config, make: Callable[[], Adapter], part: range | None, data: Data | None
    ) -> DeviceReplay:
        algorithm = config.algorithm
        assert isinstance(algorithm, OffPolicy)
        size, seed = config.options.buffer_size, config.options.seed
        return DeviceReplay(
            size, self.spec, algorithm.batch_size, seed, NoNormalizer(),
            own_share=config.scheme.own_rows,
        )  # fmt: skip

    def _sizes(self) -> tuple[int, int]:
        """Time steps and updates of a stretch at most."""
        assert isinstance(self.rhythm, EveryStep)
        steps, each = LONGEST, self.rhythm.updates
        while steps > 1:
            updates = ceil(steps * each) + 1
            rows = updates * self.scheme.num_trained * self._batch_size
            actions = steps * len(self.copies) * self.spec.action_size
            if 4 * max(rows, actions) <= PLAN_BYTES:
                break
            steps //= 2
        return steps, ceil(steps * each) + 1

    # ------------------------------------------------------------------ work

    @property
    def before_learning(self) -> str:
        if not self.stretch.is_compiled:
            return "compiling"
        return "" if self.counters.updates else "collecting"

    def play(self, until: int, end: int, stopping: Callable[[], bool] | None = None) -> Played:
        """Play to this many environment steps of the population, or to a review."""
        started = time.perf_counter()
        episodes: list[tuple[int, Episode]] = []
        planned = self._plan(until)
        while planned is not None:
            begun = time.perf_counter()
            told = self._run(planned)
            breaks = planned.review or (stopping is not None and stopping())
            following = None if breaks else self._plan(until)
            episodes += self._read(planned, told)
            self._pace(planned, time.perf_counter() - begun)
            if breaks:
                break
            planned = following
        self.seconds += time.perf_counter() - started
        review = planned is not None and planned.review
        return Played(episodes, [], review)

    def _plan(self, until: int) -> Planned | None:
        """The next stretch, counted as if it had been played; None if there is none."""
        counters, ring, copies = self.counters, self.experience.ring, len(self.copies)
        first_step, first_update = counters.time_step + 1, counters.updates + 1
        place, review = ring.num_added % ring.capacity, False
        due, places, kinds = [0], list[np.ndarray](), list[bool]()
        while counters.total_steps < until and len(due) <= self._steps_now and not review:
            counters.time_step += 1
            counters.total_steps += copies
            ring.num_added += copies
            after = self.rhythm.after(counters.time_step, self.environments.indices, [])
            for _ in range(after.updates):
                counters.updates += 1
                kind = self.scheme.with_policy(counters.updates, 0, 0)
                size = self.scheme.num_batches(kind)
                counters.total_updates += size
                places.append(self.experience.places(counters.updates, size))
                kinds.append(kind)
            due.append(len(places))
            review = after.review
        steps = len(due) - 1
        if steps == 0:
            return None
        shape = self._most_updates, self.scheme.num_trained, self._batch_size
        plan = Plan(
            np.int32(steps),
            np.int32(first_step),
            np.int32(place),
            self._drawn(first_step, steps),
            _padded(np.array(due, np.int32), (self._longest + 1,)),
            np.int32(first_update),
            _padded(np.array(places, np.int32).reshape(-1, *shape[1:]), shape),
            _padded(np.array(kinds, bool), shape[:1]),
        )
        return Planned(plan, first_step, steps, np.array(kinds, bool), review)

    def _drawn(self, first_step: int, steps: int) -> Any:
        """The random actions of a stretch; zeros on the device where there are none."""
        last = min(self.scheme.num_random_steps, first_step + steps - 1)
        seen = self.environments.observations[:0]
        random = [self.updater.random_actions(seen, t) for t in range(first_step, last + 1)]
        if not random and first_step:
            return self._no_drawn
        shape = len(self.copies), *([] if self.spec.discrete else [self.spec.action_size])
        dtype = np.int32 if self.spec.discrete else np.float32
        drawn = np.array(random, dtype).reshape(-1, *shape)
        return jax.device_put(_padded(drawn, (self._longest, *shape)), self._device)

    def _run(self, planned: Planned) -> Told:
        """Begin a stretch on the device."""
        environments, rows = self.environments, self.experience.ring.rows
        assert environments.now is not None
        moving = Moving(self.updater.state, environments.now, rows.array)
        # Without effect where it is there already; else another program would be compiled.
        moving = jax.device_put(moving, self._device)
        moving, told = self.stretch(moving, planned.plan, self._keys, environments.indices)
        self.updater.state, environments.now, rows.array = moving
        return told

    def _read(self, planned: Planned, told: Told) -> list[tuple[int, Episode]]:
        """Wait for a stretch, and count what it tells: the episodes that ended."""
        rewards, ended, found, metrics = jax.device_get(told)
        self._check(planned, found, metrics)
        episodes: list[tuple[int, Episode]] = []
        everybody = np.arange(len(self.copies))
        for step in range(planned.num_steps):
            paid = rewards[step].astype(np.float64)
            over = self.environments.count(paid, everybody, ended[step])
            episodes += [(planned.first_step + step, episode) for episode in over]
        self._count_metrics(planned.kinds, metrics)
        return episodes

    def _check(self, planned: Planned, found: np.ndarray, metrics: np.ndarray) -> None:
        """End the run at the first step at which something was not finite."""
        updates = np.flatnonzero(~np.isfinite(metrics).all(axis=(1, 2)))
        steps = np.flatnonzero(found.any(axis=1))
        if not (len(updates) or len(steps)):
            return
        # An update comes after its step: what the environment did would be the cause.
        due = planned.plan.due[: planned.num_steps + 1]
        of_update = np.searchsorted(due, updates[:1], "right") - 1
        step = min([*steps[:1], *of_update])
        self.counters.time_step = planned.first_step + int(step)
        self.counters.total_steps = self.counters.time_step * len(self.copies)
        if len(steps) and steps[0] == step:
            copy = int(np.flatnonzero(found[step])[0])
            what = BAD[int(found[step, copy])].format(copy)
            raise TrainingStopped(f"the {what} is not finite")
        names = self.stretch.metric_names[bool(planned.kinds[updates[0]])]
        self.updater.metrics.add(names, metrics[updates[0], : len(names)])

    def _count_metrics(self, kinds: np.ndarray, metrics: np.ndarray) -> None:
        """Count the metrics of a stretch's updates, in their order."""
        window, names = self.updater.metrics, self.stretch.metric_names
        for name in dict.fromkeys(name for kind in names for name in names[kind]):
            places = {kind: own.index(name) for kind, own in names.items() if name in own}
            having = np.flatnonzero(np.isin(kinds, list(places)))
            if len(having):
                columns = [places[kind] for kind in kinds[having].tolist()]
                window.add_series(name, metrics[having, columns])

    def _pace(self, planned: Planned, seconds: float) -> None:
        """Choose how long the next stretches are by the time that this one took."""
        if seconds > 2 * PATIENCE:
            self._steps_now = max(1, self._steps_now // 2)
        elif seconds < PATIENCE / 2 and planned.num_steps == self._steps_now:
            self._steps_now = min(2 * self._steps_now, self._longest)


def _padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape that begins with another one and goes on with zeros."""
    full = np.zeros(shape, array.dtype)
    full[: len(array)] = array
    return full


def make_crew(
    config: Config,
    make: Callable[[], Adapter],
    spec: EnvSpec,
    overlap: bool,
    simulated: bool,
    data: Data | None = None,
) -> Crew:
    """The crew of a run without shards; simulated: whether its environments live on the device."""
    wanted = config.options.replay_device
    reason = "its environment is not a JAX program, or wrapped in something that is none"
    if simulated:
        reason = why_step_by_step(config, spec)
    if reason is None and wanted != "host":
        return DeviceCrew(config, make, spec, overlap)
    if wanted == "device":
        raise UserError(f"replay_device cannot be device in this run: {reason}", "replay_device")
    if simulated and wanted is None:
        note(f"this run trains step by step, not in stretches on the device: {reason}")
    return Crew(config, make, spec, overlap=overlap, data=data)


def why_step_by_step(config: Config, spec: EnvSpec) -> str | None:
    """What keeps stretches of this run from being one program; None if nothing does."""
    options, scheme, algorithm = config.options, config.scheme, config.algorithm
    if not isinstance(algorithm, OffPolicy):
        return f"{algorithm.name} learns from its latest steps only"
    if type(scheme.rhythm()) is not EveryStep:
        return f"scheme {scheme.name} plays whole episodes and learns between them"
    if {scheme.num_batches(kind) for kind in (True, False)} != {scheme.num_trained}:
        return f"updates of scheme {scheme.name} differ in size"
    others = {
        "env_workers": options.env_workers > 0,
        "devices": (options.devices or 1) > 1,
        "credit": options.credit != "none",
        "hindsight": options.hindsight != "none",
        "data_share": options.data_share > 0,
        "on_divergence": options.on_divergence == "replace",
        "n_step": algorithm.n_step > 1,
        "normalize_rewards": algorithm.normalize_rewards,
        "normalize_observations": algorithm.normalize_observations,
    }
    found = [name for name, given in others.items() if given]
    if found:
        return f"that does not go with {found[0]}"
    needed = memory_needed(options.buffer_size, spec)
    if options.replay_device is None and needed > LARGEST:
        return f"its replay takes {needed / 1e9:.1f} GB (--replay-device device has it there)"
    return None
