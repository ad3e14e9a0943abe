"""A run whose learners live in shards: the chief, the records and the evaluations stay here.

    until the next time step that somebody has to hear of
        every shard plays on its own                                     shard.play
    every `exchange_period` own steps
        the shards get each other's transitions with their next work     shards
    every M own steps
        the shards report, the chief decides, the shards apply it        the scheme's review
    evaluations, metrics, checkpoints: what the shards say, put together

A checkpoint is one, whatever the number of shards: all parts are collected before anything is
written, and what is written counts once it has its name. Its parts are joined as an unsplit run
would have them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from p3s import chief
from p3s.cluster.local import LocalShards, Shards
from p3s.cluster.pace import Pace
from p3s.cluster.parts import join_parts, join_reports, join_windows, split_parts
from p3s.config import Config
from p3s.envs import Adapter
from p3s.envs.copies import equal_parts
from p3s.evaluation.playing import Unit
from p3s.evaluation.protocol import Evaluator, done
from p3s.experience.normalization import Scaling
from p3s.experience.replay import Ring
from p3s.learning.metrics import MetricsWindow
from p3s.schemes.base import StepScheme
from p3s.train import Training
from p3s.types import Params

Connect = Callable[[Config, Callable[[], Adapter], list[range]], Shards]


def connect(config: Config) -> Connect:
    """Who makes the shards of a run."""
    if config.options.engine == "local":
        return LocalShards
    from p3s.cluster.on_ray import RayShards  # needs ray, an extra

    return RayShards


class ShardedTraining(Training):
    """A run over shards; all in one process, or on the machines of a cluster."""

    def _make_workers(self, overlap: bool) -> Evaluator:
        """Make the shards, which act, learn and play their own evaluations."""
        self.parts_of_learners = equal_parts(self.scheme.num_learners, self.options.shards or 1)
        make_shards = connect(self.config)
        self.shards: Shards = make_shards(self.config, self.make, self.parts_of_learners)
        self._exact_resume, note = self.shards.ask(0, "about")
        self.experience: Any = SharedReplay(self.shards, self.options.buffer_size, note)
        self._window = MetricsWindow()
        self._arriving: list[Any] = []
        self._behind = False
        self._pace = Pace(self.parts_of_learners)
        self.divergence: Any = ShardGuard(self)
        return ShardEvaluator(self)

    def _start(self) -> None:
        first = np.concatenate(self.shards.tell_all("start"))
        self.shards.tell_all("expect", first)

    def _work_off(self) -> bool:
        return False

    # ------------------------------------------------------------------ the loop's work

    def _step(self, until: int) -> None:
        """Time steps up to the next that somebody has to hear of, and what is due there."""
        counters, end = self.counters, self._next_stop(until)
        arrived, self._arriving = self._arriving, []
        with self._pace:
            played, parcels = self.shards.play(end, arrived)
        self._behind = True
        self._count([each.counters for each in played])
        episodes = [entry for each in played for entry in each.episodes]
        for time_step, episode in sorted(episodes, key=lambda entry: (entry[0], entry[1].learner)):
            self._note_episode(time_step, episode)
        if end % self.options.exchange_period == 0:
            self._arriving = parcels
        if self.rhythm.after(counters.time_step, np.empty(0), []).review:
            self.divergence.check()
            self.last_review = self._review()
            self.folder.append("lineage", self.last_review)
            self._tell("review", self.last_review)
            self.health.see_review(self.last_review)

    def _next_stop(self, until: int) -> int:
        """The next time step with an exchange, a review or a record, or the end."""
        step, copies, options = self.counters.time_step, self.scheme.num_envs, self.options
        stops = [math.ceil(until / copies)]
        for own_period in (options.exchange_period, self._review_period):
            stops.append(step + own_period - step % own_period)
        for period in (options.log_period, options.evaluation_period, options.checkpoint_period):
            if period:
                following = (step * copies // period + 1) * period
                stops.append(math.ceil(following / copies))
        return min(stops)

    @property
    def _review_period(self) -> int:
        assert isinstance(self.scheme, StepScheme)
        return self.scheme.review_period

    def catch_up(self) -> None:
        """Let the shards insert what arrived and learn from the last step, if they have not."""
        if not self._behind:
            return
        arrived, self._arriving = self._arriving, []
        with self._pace:
            self._count(self.shards.catch_up(arrived))
        self._behind = False
        exchanges = self.counters.time_step // self.options.exchange_period
        rows = exchanges * self.options.exchange_period * self.scheme.num_envs
        self.experience.ring.num_added = rows

    def _count(self, counted: list[dict[str, Any]]) -> None:
        """Take over what the shards counted, which is the same for all but their times."""
        self._pace.worked(counted)
        self.counters.resume({**counted[0], "seconds": self.counters.seconds})

    def _review(self) -> dict[str, Any]:
        """Let the chief look at the population; a row of the lineage."""
        self.catch_up()
        told = self.shards.tell_all("report")
        report, rng = join_reports([report for report, _ in told]), told[0][1]
        seen = chief.mean_returns(self.returns.values).tolist()
        decision = self.scheme.decide(report, self.returns.values, rng)
        offers = {source: self._ask_owner(source, "offer") for source in decision.sources}
        self.shards.tell_all("apply", decision, offers)
        self.returns.forget(self.scheme.outdated(decision.row))
        return {"step": self.total_steps, **decision.row, "recent_returns": seen}

    def owner(self, learner: int) -> int:
        """The shard that a learner lives in."""
        return next(i for i, part in enumerate(self.parts_of_learners) if learner in part)

    def _ask_owner(self, learner: int, what: str) -> Params:
        return self.shards.ask(self.owner(learner), what, learner)

    # ------------------------------------------------------------------ records

    @property
    def metrics(self) -> MetricsWindow:
        return self._window

    @property
    def exact_resume(self) -> bool:
        return self._exact_resume

    @property
    def scaling(self) -> Scaling | None:
        return self.shards.ask(0, "scaling")

    def champions(self) -> list[Params]:
        """None in their places: every shard has the policies of its own learners."""
        self.catch_up()
        return [None] * self.scheme.num_learners

    def champion(self, index: int) -> Params:
        self.catch_up()
        return self._ask_owner(index, "policy")

    def _settle(self) -> None:
        self.catch_up()
        for signs in self.shards.tell_all("signs"):
            self.health.say(signs)
        windows = self.shards.tell_all("take_metrics")
        self._window.resume({**join_windows(windows), "episodes": self._window.episodes})

    def _metrics_row(self) -> dict[str, Any]:
        return {**super()._metrics_row(), "shards": self._pace.rows(self.counters.time_step)}

    # ------------------------------------------------------------------ out and in

    @property
    def parts(self) -> dict[str, Any]:
        """What of a checkpoint is not in the shards."""
        return {
            "counters": self.counters,
            "returns": self.returns,
            "best_policy": self.best_policy,
            "records": self.folder,
        }

    def snapshot(self) -> dict[str, dict[str, Any]]:
        self._collect_evaluations(wait=True)
        self.catch_up()
        own = {name: part.snapshot() for name, part in self.parts.items()}
        joined = join_parts(self.shards.tell_all("snapshot"), self.scheme.stacked)
        joined["metrics"]["episodes"] = self._window.episodes
        return {**own, **joined}

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> None:
        for name, part in self.parts.items():
            part.resume(snapshot.get(name, {}))
        self._window.episodes = list(snapshot["metrics"]["episodes"])
        split = split_parts(snapshot, self.parts_of_learners, self.scheme.stacked)
        added = {"replay": {"num_added": self.experience.ring.num_added}}
        continued = self.shards.ask_all("resume", [{**part, **added} for part in split])
        if not all(continued):
            self.shards.tell_all("cut")
        self._pace.begin_at(self.counters.time_step)

    def close(self) -> None:
        with contextlib.ExitStack() as closing:
            for part in (self.folder, self.evaluations, self.shards):
                closing.callback(part.close)


class ShardGuard:
    """Looks for learners that have diverged, in every shard; the run stops if there is one."""

    replaces = False

    def __init__(self, training: ShardedTraining) -> None:
        self._training = training

    def check(self) -> list[dict[str, Any]]:
        """Stop the run if a parameter is not finite."""
        self._training.catch_up()
        self._training.shards.tell_all("check")
        return []


class ShardEvaluator(Evaluator):
    """Lets every shard play the episodes of its own learners."""

    def __init__(self, training: ShardedTraining) -> None:
        super().__init__(training.make, training.config.algorithm, training.options.seed)
        self._training = training

    def submit(self, units: list[Unit]) -> list[Future[np.ndarray]]:
        shards = range(len(self._training.parts_of_learners))
        owners = [self._training.owner(unit.learner) for unit in units]
        orders = [[i for i, owner in enumerate(owners) if owner == shard] for shard in shards]
        own_units = [[units[i] for i in order] for order in orders]
        answers = self._training.shards.ask_all("evaluate", own_units)
        returns = {
            i: played
            for order, answer in zip(orders, answers, strict=True)
            for i, played in zip(order, answer, strict=True)
        }
        return [done(returns[i]) for i in range(len(units))]


class SharedReplay:
    """The replay as checkpoints see it."""

    def __init__(self, shards: Shards, capacity: int, note: str) -> None:
        self.ring = RemoteRing(shards, capacity)
        self._note = note

    def describe(self) -> str:
        """One line about the memory that it takes."""
        return f"{self._note}, in every shard"

    def cut(self) -> None:
        """Nothing: a transition is whole in itself."""


class RemoteRing(Ring):
    """A replay's ring in the shards: rows are read from the first, and loaded into all."""

    def __init__(self, shards: Shards, capacity: int) -> None:
        rows: Any = RemoteRows(shards, capacity)
        super().__init__(rows)
        self._shards = shards

    def load(self, start: int, data: bytes) -> None:
        self._shards.tell_all("load_segment", start, data)


class RemoteRows:
    """The rows of a ring, fetched when they are asked for."""

    def __init__(self, shards: Shards, capacity: int) -> None:
        self._shards, self._capacity = shards, capacity

    def __len__(self) -> int:
        return self._capacity

    def __getitem__(self, places: slice) -> np.ndarray:
        return self._shards.ask(0, "segment", places.start or 0, places.stop)
