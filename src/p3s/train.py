"""The only training loop (Appendix H).

    until the run has its steps
        find the next stop: an evaluation, metrics, a checkpoint, an exchange,
            a callback that listens, the end                            recorder, crew, callbacks
        the crew plays to it, or to a review                            crew
            act, step the environment copies, store, learn
        the episodes that ended count for the chief                     returns
        if a review is due: the chief looks at the population           chief, by way of the scheme
        what is due is written                                          recorder

A run is its parts: each can be snapshotted and resumed, so a checkpoint is a loop over them.
Everything random follows from seed, name and step, so a resumed run draws what the uninterrupted
one would have drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from p3s import chief
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.errors import ShardLost, TrainingStopped
from p3s.learning.divergence import source_for
from p3s.runs.parts import RunParts


class Training(RunParts):
    """A run in progress."""

    def __init__(self, config: Config, make: Callable[[], Adapter], overlap: bool = True) -> None:
        super().__init__(config, make, overlap)
        self.stop_requested = False
        self.stop_reason: str | None = None
        """Why a callback ended the run; None if none did."""

    def run(self, until: int, callback: Callable[[Training], Any] | None = None) -> None:
        """Train until this many total environment steps, or until a stop is requested.

        callback: called after every time step, with shards at every stop; False stops.
        """
        started, before = time.perf_counter(), self.counters.seconds
        if self.counters.time_step == 0:
            self.crew.start()
        while self.total_steps < until and not self.stop_requested:
            previous = self.total_steps
            listens = callback is not None and self.crew.stops_anywhere
            stop = previous + 1 if listens else self._next_stop(until)
            try:
                self._play(stop, until)
                self.counters.seconds = before + time.perf_counter() - started
                if self.total_steps > previous:
                    self.callbacks.tell(self, "step")
                    self._record(previous, last=self.total_steps >= until)
            except TrainingStopped as error:
                kind = ShardLost if isinstance(error, ShardLost) else TrainingStopped
                raise kind(f"at total step {self.total_steps}: {error}") from error
            if callback is not None and callback(self) is False:
                break
        self.collect_evaluations(wait=True)
        if self.stop_reason is not None:
            self.checkpoint()
        self.callbacks.tell(self, "end")
        self.counters.seconds = before + time.perf_counter() - started

    def _next_stop(self, until: int) -> int:
        """The total step at which the crew has to be back; it may come earlier."""
        stops = self.recorder.next_stop(self.total_steps), self.callbacks.next_stop(self)
        return int(min(until, self.crew.next_stop(), *stops))

    def _play(self, stop: int, until: int) -> None:
        """Let the crew play, and do what the chief has to do."""
        played = self.crew.play(stop, until, lambda: self.stop_requested)
        for time_step, episode in played.episodes:
            if self.scheme.counts(time_step - episode.length + 1):
                self.returns.add(episode)
        self.recorder.note(played)
        if played.review:
            self._review()

    def _review(self) -> None:
        """Let the chief look at the population."""
        self.check_learners()
        seen = chief.mean_returns(self.returns.values).tolist()
        row = self.crew.review(self.returns.values)
        self.returns.forget(self.scheme.outdated(row))
        row = {"step": self.total_steps, **row, "recent_returns": seen}
        self.recorder.add_review(row)
        self.callbacks.tell(self, "review", row)
        self.health.see_review(row)

    def check_learners(self) -> None:
        """Stop the run if a learner has diverged, or replace it."""
        self.crew.catch_up()
        found = self.crew.diverged()
        if not found:
            return
        if self.options.on_divergence == "stop":
            raise TrainingStopped(f"the parameters of learner {found[0]} are not finite")
        source = source_for(found, self.returns.values)
        self.crew.replace(found, source)
        self.returns.forget(found)
        self.recorder.add_replacement(self.total_steps, found, source)

    def _record(self, previous: int, last: bool) -> None:
        """Write what is due."""
        due = self.recorder.due(previous, self.total_steps, last)
        if due.metrics:
            self.crew.catch_up()
            for signs in self.crew.signs():
                self.health.say(signs)
            means = chief.mean_returns(self.returns.values).tolist()
            about = self.crew.take_metrics(), means, self.crew.about_parts()
            self.recorder.add_metrics(self.counters, *about)
        if due.evaluation:
            self.check_learners()
            self.begin_evaluation()
        # A checkpoint holds no evaluation under way. So it is put off, but not for ever.
        waits = due.overdue or self.callbacks.wait_for_evaluations
        self.collect_evaluations(wait=last or (due.evaluation and waits))
        if last or (due.checkpoint and not self.evaluations.under_way):
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write a checkpoint and the policies into the run folder, if there is one."""
        if self.options.on_divergence == "stop":
            self.check_learners()  # the last checkpoint must be one to go on from
        self.write_checkpoint()

    # ------------------------------------------------------------------ for callbacks

    def stop(self, reason: str) -> None:
        """End the training after this step, with a checkpoint."""
        self.stop_requested, self.stop_reason = True, self.stop_reason or reason

    def record(self, values: dict[str, float]) -> None:
        """Keep numbers of your own: a row of `scalars`, and of scalars.jsonl in a run folder."""
        plain = {name: np.asarray(value).item() for name, value in values.items()}
        self.recorder.add_scalars({"step": self.total_steps, **plain})
