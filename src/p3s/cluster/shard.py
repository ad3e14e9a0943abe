"""A part of a population: its environments, its learners, and a replica of the replay.

    play       insert what arrived; then, for every own step: learn from the step before, act, step
    catch_up   insert what arrived; learn from the last step

A shard's own transitions wait in its outbox until an exchange, like everybody else's: replicas are
equal at any time, and a minibatch does not depend on where its learner lives. With the transitions
come the observations that everybody acts on next: running statistics count them before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from p3s import keys
from p3s.config import Config
from p3s.envs import Adapter
from p3s.envs.copies import LocalCopies
from p3s.errors import TrainingStopped
from p3s.evaluation.playing import Player, Unit
from p3s.experience.kinds import make_replay
from p3s.experience.normalization import RunningMoments, Scaling, Unnormalized
from p3s.learning.counters import Counters
from p3s.learning.divergence import diverged_learners
from p3s.learning.health import Checkup, Signs
from p3s.learning.updater import Updater
from p3s.schemes.base import Decision
from p3s.trees import pick
from p3s.types import Episode, Params


class Parcel(NamedTuple):
    """What a shard has for an exchange."""

    rows: np.ndarray
    """What it collected since the last one, (steps, learners, columns)."""
    observations: np.ndarray
    """What its learners act on next, (learners, ...); none if they are not counted."""


class Played(NamedTuple):
    """What a shard tells of a stretch of steps."""

    episodes: list[tuple[int, Episode]]
    """Finished training episodes with their time steps."""
    counters: dict[str, Any]
    """The shard's counters; `seconds` is the time that it worked."""


class Shard:
    """Some of a population's learners and all that they need."""

    def __init__(self, config: Config, make: Callable[[], Adapter], part: range) -> None:
        options, algorithm, scheme = config.options, config.algorithm, config.scheme
        self.scheme, self.part, self._seed = scheme, part, options.seed
        self._exchange_period = options.exchange_period
        self.environments = LocalCopies(make, len(part), options.seed, part.start)
        self.spec = self.environments.spec
        moments = RunningMoments(self.spec) if algorithm.normalize_observations else Unnormalized()
        self.normalizer, self.counters = moments, Counters()
        own = slice(part.start, part.stop)
        self.replay = make_replay(config, self.spec, moments, own)
        self.updater = Updater(
            scheme, self.spec, options.seed, self.replay, moments, self.counters, True,
            options.devices, part,
        )  # fmt: skip
        self._checkup = Checkup(scheme, self.spec, self.replay)
        self._rhythm = scheme.rhythm()
        self._player = Player(make, algorithm, options.seed)
        self._outbox: list[np.ndarray] = []
        self._counted = slice(None) if algorithm.normalize_observations else slice(0)
        self._uncounted = self._observations()[:0]
        """Observations of all learners that are counted before the next step, (count, ...)."""
        self._due = 0

    # ------------------------------------------------------------------ work

    def start(self) -> np.ndarray:
        """Begin the first episodes; the first observations, as in a parcel."""
        self.environments.start()
        return self._observations()

    def expect(self, observations: np.ndarray) -> None:
        """Take note of the first observations of all learners."""
        self._uncounted = observations

    def play(self, until: int, arrived: Sequence[Parcel | None]) -> tuple[Played, Parcel | None]:
        """Step to this time step; the updates of the last step stay due.

        arrived: the parcels of all shards, if an exchange is due now; its own, which it has, may
        be None. Returned is the parcel for the next exchange, if it is due at the end.
        """
        started = time.perf_counter()
        self._receive(arrived)
        episodes: list[tuple[int, Episode]] = []
        while self.counters.time_step < until:
            self._learn()
            episodes += [(self.counters.time_step, episode) for episode in self._step()]
        self.counters.seconds += time.perf_counter() - started
        full = until % self._exchange_period == 0
        return Played(episodes, self.counters.snapshot()), self._parcel() if full else None

    def catch_up(self, arrived: Sequence[Parcel | None]) -> dict[str, Any]:
        """Learn from the last step; the shard's counters."""
        started = time.perf_counter()
        self._receive(arrived)
        self._learn()
        self.updater.settle()
        self.counters.seconds += time.perf_counter() - started
        return self.counters.snapshot()

    def _step(self) -> list[Episode]:
        counters = self.counters
        counters.time_step += 1
        self.normalizer.see(self._uncounted)
        self._uncounted = self._uncounted[:0]
        actions = self.updater.actions(self.environments.observations)
        self._due = self._rhythm.updates_after(counters.time_step)
        exchange = counters.time_step % self._exchange_period == 0
        coming = (len(self._outbox) + 1) * self.scheme.num_envs if exchange else 0
        self.updater.run_ahead(self._due, coming)
        actions = np.asarray(jax.device_get(actions))
        everybody = np.arange(len(self.part))
        transitions, episodes = self.environments.step(actions, everybody)
        ended = [episode.learner for episode in episodes]
        self._outbox.append(self.replay.pack(transitions, self.part, ended))
        counters.total_steps += self.scheme.num_envs
        return episodes

    def _learn(self) -> None:
        """The updates after the last step, unless they were done."""
        if self._due:
            self.updater.update(self._due, self.environments.observations)
            self._due = 0

    def _parcel(self) -> Parcel:
        return Parcel(np.stack(self._outbox), self._observations())

    def _observations(self) -> np.ndarray:
        """What these learners act on next, if it is counted."""
        return self.environments.observations[self._counted].copy()

    def _receive(self, arrived: Sequence[Parcel | None]) -> None:
        """Insert the rows of all shards, in the order of steps and learners."""
        if not arrived:
            return
        parcels = [self._parcel() if parcel is None else parcel for parcel in arrived]
        steps = np.concatenate([parcel.rows for parcel in parcels], axis=1)
        for rows in steps:
            self.replay.insert(rows, range(len(rows)))
        # What the first of these steps acted on came with the exchange before.
        later = [self.replay.observations_of(rows)[self._counted] for rows in steps[1:]]
        self._uncounted = np.concatenate([*later, *(parcel.observations for parcel in parcels)])
        self._outbox = []

    # ------------------------------------------------------------------ the chief

    def report(self) -> tuple[dict[str, Any], np.random.Generator]:
        """What the chief is told of these learners; and a generator for its decision."""
        rng = keys.generator(self._seed, "review", self.counters.time_step)
        observations = self.replay.observations(rng)
        return jax.device_get(self.scheme.report(self.updater.state, observations)), rng

    def offer(self, learner: int) -> Params:
        """What others take over from one of these learners."""
        offer = self.scheme.offer(self.updater.state, learner - self.part.start)
        return jax.device_get(offer)

    def apply(self, decision: Decision, offers: dict[int, Params]) -> None:
        """Do what the chief has decided."""
        state = self.scheme.apply(self.updater.state, decision, offers)
        self.updater.state = self.updater.program.place(state)

    def check(self) -> None:
        """Stop the run if a parameter of one of these learners is not finite."""
        found = diverged_learners(self.scheme, self.updater.state)
        if found:
            learner = self.part[found[0]]
            raise TrainingStopped(f"the parameters of learner {learner} are not finite")

    # ------------------------------------------------------------------ evaluation, records

    def policy(self, learner: int) -> Params:
        """The policy of one of these learners, on the host."""
        champions = self.scheme.champions(self.updater.state)
        return jax.device_get(pick(champions, learner - self.part.start))

    def evaluate(self, units: list[Unit]) -> list[np.ndarray]:
        """Play units of an evaluation with the policies of these learners."""
        policies = {unit.learner: self.policy(unit.learner) for unit in units}
        return [self._player.play(unit._replace(policy=policies[unit.learner])) for unit in units]

    def scaling(self) -> Scaling | None:
        """What observations are normalized by now."""
        return self.normalizer.scaling

    def signs(self) -> Signs:
        """What is seen of these learners' health, by their metrics since those were last taken."""
        means, updates = self.updater.metrics.means(), self.counters.updates
        return self._checkup.signs(self.updater.state, means, updates)

    def take_metrics(self) -> dict[str, Any]:
        """The metrics since they were last taken."""
        window = self.updater.metrics.snapshot()
        self.updater.metrics.clear()
        return window

    def about(self) -> tuple[bool, str]:
        """Whether episodes can be resumed, and a line about the replay."""
        return self.environments.exact_resume, self.replay.describe()

    # ------------------------------------------------------------------ out and in

    def segment(self, start: int, end: int) -> np.ndarray:
        """Rows of the replay."""
        return self.replay.ring.rows[start:end]

    def load_segment(self, start: int, data: bytes) -> None:
        """Put rows into the replay."""
        self.replay.ring.load(start, data)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Arrays of this part, from which `resume` continues; everything due was done."""
        rows = self.replay.ring.rows
        waiting = np.array(self._outbox, rows.dtype).reshape(-1, len(self.part), rows.shape[1])
        return {
            "environments": self.environments.snapshot(),
            "state": self.updater.snapshot(),
            "metrics": self.updater.metrics.snapshot(),
            "normalizer": self.normalizer.snapshot(),
            "experience": self.replay.snapshot(),
            "outbox": {"rows": waiting, "uncounted": self._uncounted},
        }

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> bool:
        """Continue from a snapshot of this part; the replay's rows are already in place.

        Whether the episodes in progress continue.
        """
        self.counters.resume(snapshot["counters"])
        self.replay.ring.num_added = snapshot["replay"]["num_added"]
        self.environments.resume(snapshot["environments"])
        self.updater.resume(snapshot["state"])
        self.updater.metrics.resume(snapshot["metrics"])
        self.normalizer.resume(snapshot["normalizer"])
        self.replay.resume(snapshot["experience"])
        self._outbox = list(snapshot["outbox"]["rows"].copy())
        self._uncounted = snapshot["outbox"]["uncounted"].copy()
        return self.environments.continued

    def cut(self) -> None:
        """Episodes in progress will not continue."""
        self.replay.cut()

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()
        self._player.close()
