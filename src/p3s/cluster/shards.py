"""A crew that is made of shards: what they collect is exchanged, what they say is put together.

    every `exchange_period` own steps
        the shards get each other's transitions with their next work
    every M own steps
        the shards report, the chief decides, the shards apply it
    evaluations, metrics, checkpoints: what the shards say, put together

A checkpoint is one, whatever the number of shards: all parts are collected before anything is
written, and they are joined as an unsplit run would have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from p3s.cluster.pace import Pace
from p3s.cluster.parts import join_parts, join_reports, join_windows, split_parts
from p3s.cluster.places import Places, make_places
from p3s.cluster.remote_replay import SharedReplay
from p3s.cluster.shard import Told
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.experience.data import Data
from p3s.experience.normalization import Scaling
from p3s.learning.counters import Counters
from p3s.learning.crew import Crew, Played
from p3s.learning.health import Signs
from p3s.learning.metrics import Window
from p3s.machine import equal_parts
from p3s.types import EnvSpec, Params


class Shards:
    """All learners of a run, in shards; to the training loop it is a `Crew`."""

    stops_anywhere, stride = False, 1
    before_learning = Crew.before_learning

    def __init__(
        self,
        config: Config,
        make: Callable[[], Adapter],
        spec: EnvSpec,
        data: Data | None = None,
    ) -> None:
        self.scheme, self._config = config.scheme, config
        self.parts = equal_parts(self.scheme.num_learners, config.options.shards or 1)
        self.places: Places = make_places(config, make, spec, self.parts, data)
        self.exact_resume, note = self.places.ask(0, "about")
        self.experience = SharedReplay(self.places, config.options.buffer_size, note)
        self.counters, self.stepping_seconds = Counters(), 0.0
        self._arriving: list[Any] = []
        """What the shards have for the exchange that is due."""
        self._behind = False
        self._pace = Pace(self.parts)

    # ------------------------------------------------------------------ work

    def start_from(self, policy: Params, learners: Sequence[int]) -> None:
        """Let these learners start from a policy, before the first step."""
        self.places.tell_all("start_from", policy, learners)

    def start(self) -> None:
        """Begin the first episodes."""
        first = np.concatenate(self.places.tell_all("first_observations"))
        self.places.tell_all("expect", first)

    def next_stop(self) -> float:
        """The total step of the next exchange."""
        own = self._config.options.exchange_period * self.scheme.num_envs
        return (self.counters.total_steps // own + 1) * own

    def play(self, until: int, end: int, stopping: Callable[[], bool] | None = None) -> Played:
        """Let every shard play up to the next exchange at most; `stopping` is not asked."""
        arrived, self._arriving = self._arriving, []
        with self._pace:
            told, parcels = self.places.play(until, end, arrived)
        self._behind = True
        self._count(told)
        if self.counters.time_step % self._config.options.exchange_period == 0:
            self._arriving = parcels
        episodes = [entry for each in told for entry in each.played.episodes]
        episodes.sort(key=lambda entry: (entry[0], entry[1].copy))
        lost = [copy for each in told for copy in each.played.lost]
        return Played(episodes, lost, told[0].played.review)

    def catch_up(self) -> None:
        """Let the shards insert what arrived and learn from the last step, if they have not."""
        if not self._behind:
            return
        arrived, self._arriving = self._arriving, []
        with self._pace:
            self._count(self.places.catch_up(arrived))
        self._behind = False
        period = self._config.options.exchange_period
        exchanges = self.counters.time_step // period
        self.experience.ring.num_added = exchanges * period * self.scheme.num_envs

    def _count(self, told: list[Told]) -> None:
        """Take over what the shards counted, which is the same for all but their times."""
        self._pace.worked([each.seconds for each in told])
        self.counters.resume({**told[0].counters, "seconds": self.counters.seconds})

    # ------------------------------------------------------------------ the chief

    def review(self, recent_returns: np.ndarray) -> dict[str, Any]:
        """Let the chief look at the population; a row of the lineage."""
        told = self.places.tell_all("report")
        report, rng = join_reports([report for report, _ in told]), told[0][1]
        decision = self.scheme.decide(report, recent_returns, rng)
        offers = {source: self._ask_owner(source, "offer") for source in decision.sources}
        self.places.tell_all("apply", decision, offers)
        return decision.row

    def diverged(self) -> list[int]:
        """The learners with a parameter or an action that is not finite."""
        return [learner for found in self.places.tell_all("diverged") for learner in found]

    def replace(self, learners: list[int], source: int) -> None:
        """Put perturbed copies of a learner in the place of others."""
        parts = self._ask_owner(source, "whole_learner")
        self.places.tell_all("replace", learners, source, parts)

    def owner(self, learner: int) -> int:
        """The shard that a learner lives in."""
        return next(i for i, part in enumerate(self.parts) if learner in part)

    def _ask_owner(self, learner: int, what: str) -> Any:
        return self.places.ask(self.owner(learner), what, learner)

    # ------------------------------------------------------------------ evaluation, records

    def champions(self) -> list[Params]:
        """None in their places: every shard has the policies of its own learners."""
        return [None] * self.scheme.num_learners

    def policy(self, learner: int) -> Params:
        """The policy of a learner, on the host."""
        return self._ask_owner(learner, "policy")

    @property
    def scaling(self) -> Scaling | None:
        """What observations are normalized by now."""
        return self.places.ask(0, "current_scaling")

    def signs(self) -> list[Signs]:
        """What is seen of the learners' health."""
        return [signs for told in self.places.tell_all("signs") for signs in told]

    def take_metrics(self) -> Window:
        """The metrics since they were last taken."""
        return join_windows(self.places.tell_all("take_metrics"))

    def about_parts(self) -> dict[str, Any]:
        """How fast each shard was, and how long it waited."""
        return {"shards": self._pace.rows(self.counters.time_step)}

    # ------------------------------------------------------------------ out and in

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The parts of an unsplit run, and what waits for the exchange."""
        joined = join_parts(self.places.tell_all("snapshot"), self.scheme.stacked)
        return {**joined, "counters": self.counters.snapshot()}

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> None:
        """Continue from a snapshot; the replay's rows are already in place."""
        self.counters.resume(snapshot["counters"])
        split = split_parts(snapshot, self.parts, self.scheme.stacked)
        added = {"replay": {"num_added": self.experience.ring.num_added}}
        continued = self.places.ask_all("resume_parts", [{**part, **added} for part in split])
        if not all(continued):
            self.places.tell_all("cut")
        self._pace.begin_at(self.counters.time_step)

    def close(self) -> None:
        """End the shards."""
        self.places.close()
