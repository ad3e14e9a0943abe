"""A crew whose transitions go by way of an exchange, with a replica of the replay.

    play       take what arrived; then, for every own step: learn from the step before, act, step
    catch_up   take what arrived; learn from the last step

A shard's own transitions wait in its outbox until an exchange, like everybody else's: replicas are
equal at any time, and a minibatch does not depend on where its learner lives. With the transitions
come the observations that everybody acts on next: running statistics count them before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.evaluation.playing import Player, Unit
from p3s.experience.data import Data
from p3s.experience.replay import Replay
from p3s.learning.crew import Crew, Played
from p3s.types import EnvSpec, Transition


class Parcel(NamedTuple):
    """What a shard has for an exchange."""

    rows: np.ndarray
    """What it collected since the last one, (steps, learners, columns)."""
    observations: np.ndarray
    """What its learners act on next, (learners, ...); none if they are not counted."""


class Told(NamedTuple):
    """What a shard tells of its work."""

    played: Played
    counters: dict[str, Any]
    seconds: float
    """The time that it has worked, so far."""


class Shard(Crew):
    """Some of a population's learners."""

    learns_at_once = False
    experience: Replay

    def __init__(
        self,
        config: Config,
        make: Callable[[], Adapter],
        spec: EnvSpec,
        part: range,
        data: Data | None = None,
    ) -> None:
        super().__init__(config, make, spec, part, data=data)
        self._exchange_period = config.options.exchange_period
        self._player = Player(make, config.algorithm, config.options.seed)
        self._outbox: list[np.ndarray] = []
        self._counted = slice(None) if config.algorithm.normalize_observations else slice(0)
        self._uncounted = self._observations()[:0]
        """Observations of all learners that are counted before the next step, (count, ...)."""

    # ------------------------------------------------------------------ work

    def first_observations(self) -> np.ndarray:
        """Begin the first episodes; the first observations, as in a parcel."""
        self.start()
        return self._observations()

    def expect(self, observations: np.ndarray) -> None:
        """Take note of the first observations of all learners."""
        self._uncounted = observations

    def play_part(
        self, until: int, end: int, arrived: Sequence[Parcel | None]
    ) -> tuple[Told, Parcel | None]:
        """Play; the updates of the last step stay due.

        arrived: the parcels of all shards, if an exchange is due now; its own, which it has, may
        be None. Returned is the parcel for the next exchange, if it is due at the end.
        """
        self._receive(arrived)
        played = self.play(until, end)
        full = self.counters.time_step % self._exchange_period == 0
        return self._told(played), self._parcel() if full else None

    def catch_up_part(self, arrived: Sequence[Parcel | None]) -> Told:
        """Learn from the last step."""
        self._receive(arrived)
        self.catch_up()
        return self._told(Played([], [], False))

    def _told(self, played: Played) -> Told:
        return Told(played, self.counters.snapshot(), self.seconds)

    def _count_observations(self, active: np.ndarray) -> None:
        self.normalizer.see(self._uncounted)
        self._uncounted = self._uncounted[:0]

    def _num_pending(self, num_active: int) -> int:
        exchange = self.counters.time_step % self._exchange_period == 0
        return (len(self._outbox) + 1) * self.scheme.num_envs if exchange else 0

    def _num_stepped(self, num_active: int) -> int:
        return self.scheme.num_envs

    def _active(self, end: int) -> np.ndarray:
        return np.arange(len(self.copies))

    def _store(self, transitions: Transition, active: list[int]) -> None:
        self._outbox.append(self.experience.pack(transitions, self.copies, self._ended))

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
            self.experience.insert(rows, range(len(rows)))
        # What the first of these steps acted on came with the exchange before.
        later = [self.experience.observations_of(rows)[self._counted] for rows in steps[1:]]
        self._uncounted = np.concatenate([*later, *(parcel.observations for parcel in parcels)])
        self._outbox = []

    # ------------------------------------------------------------------ evaluation

    def evaluate(self, units: list[Unit]) -> list[np.ndarray]:
        """Play units of an evaluation with the policies of these learners."""
        policies = {unit.learner: self.policy(unit.learner) for unit in units}
        return [self._player.play(unit._replace(policy=policies[unit.learner])) for unit in units]

    # ------------------------------------------------------------------ out and in

    def about(self) -> tuple[bool, str]:
        """Whether episodes can be resumed, and a line about the replay."""
        return self.exact_resume, self.experience.describe()

    def current_scaling(self) -> Any:
        """What observations are normalized by now."""
        return self.scaling

    def segment(self, start: int, end: int) -> np.ndarray:
        """Rows of the replay."""
        return self.experience.ring.rows[start:end]

    def load_segment(self, start: int, data: bytes) -> None:
        """Put rows into the replay."""
        self.experience.ring.load(start, data)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        rows = self.experience.ring.rows
        waiting = np.array(self._outbox, rows.dtype).reshape(-1, len(self.copies), rows.shape[1])
        outbox = {"rows": waiting, "uncounted": self._uncounted}
        return {**super().snapshot(), "outbox": outbox}

    def resume_parts(self, snapshot: dict[str, dict[str, Any]]) -> bool:
        self.experience.ring.num_added = snapshot["replay"]["num_added"]
        continued = super().resume_parts(snapshot)
        self._outbox = list(snapshot["outbox"]["rows"].copy())
        self._uncounted = snapshot["outbox"]["uncounted"].copy()
        return continued

    def cut(self) -> None:
        """Episodes in progress will not continue."""
        self.experience.cut()

    def close(self) -> None:
        super().close()
        self._player.close()
