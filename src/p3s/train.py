"""The only training loop (Appendix H).

    for every time step
        each learner acts in its own environment copy           collect
        its transition goes into the common replay              replay
        what the scheme's rhythm says is due                    rhythm
            after T_initial: each learner updates               learners, by way of the scheme
            every M steps: the chief reviews the population     chief, by way of the scheme
        every R_eval total steps: an evaluation                 evaluation
        every now and then: a row of metrics, a checkpoint      records, checkpoint

The first update and the first review follow step T_initial, as in Appendix H. What is random
follows from seed, name and step, so a resumed run draws what the uninterrupted one would have
drawn, and an update whose minibatches happen to hold none of the step's own transitions is
computed while the environments take that step.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from p3s import chief, keys
from p3s.algorithms.off_policy import OffPolicy
from p3s.config import Config, check_actions
from p3s.envs import Adapter
from p3s.envs.copies import Collector, Episode
from p3s.errors import TrainingStopped
from p3s.evaluation import Evaluator
from p3s.experience.normalization import RunningMoments, Scaling, normalise
from p3s.experience.replay import Replay, check_memory
from p3s.experience.rollouts import rollout_rows, unpack_rollout
from p3s.learning.learners import pick
from p3s.learning.metrics import MetricsWindow
from p3s.learning.program import Program
from p3s.learning.rhythm import Due
from p3s.policy import Policy
from p3s.runs.checkpoints import Checkpoints, Snapshot
from p3s.runs.records import RunFolder
from p3s.trees import flatten_names, unflatten_names
from p3s.types import unpack


class Training:
    """A run in progress: the population, its replay and environments, and its counters."""

    def __init__(self, config: Config, make: Callable[[], Adapter]) -> None:
        config.check()
        self.config, self.scheme, self.options = config, config.scheme, config.options
        self.folder: RunFolder | None = None
        self.checkpoints: Checkpoints | None = None
        example = make()
        self.spec = example.env_spec
        check_actions(config, example)
        on_policy = config.algorithm.on_policy
        capacity = 0 if on_policy else self.options.buffer_size
        memory_note = check_memory(capacity, self.spec)
        self.memory_note = "no replay: only the latest steps" if on_policy else memory_note
        self.about_actions = example.about_actions()
        example.close()
        seed, count = self.options.seed, self.scheme.num_envs
        self.make = make
        self.collector = Collector(make, count, seed)
        self.replay = Replay(capacity, self.spec)
        self.rollout = rollout_rows(config.algorithm, self.spec)
        normalised = config.algorithm.normalise_observations
        self.moments = RunningMoments(self.spec) if normalised else None
        self.evaluator = Evaluator(make, config.algorithm, seed)
        self.rhythm = self.scheme.rhythm()
        self.recent_returns = np.full((count, self.scheme.num_recent), np.nan)
        self.time_step = 0
        self.total_steps = 0
        self.updates = 0
        self.total_updates = 0
        """Updates of all learners together."""
        self.backlog = 0
        self.backlog_done = 0
        self.seconds = 0.0
        self.stop_requested = False
        self.on_evaluation: Callable[[dict[str, Any]], None] = lambda row: None
        self.last_evaluation: dict[str, Any] | None = None
        self.last_review: dict[str, Any] = {}
        self._positions: dict[str, int] = {}
        self._window = MetricsWindow()
        self._unread: tuple[bool, jax.Array] | None = None
        self._ahead: tuple[Any, np.ndarray | jax.Array] | None = None
        unpack_rows = unpack if self.rollout is None else unpack_rollout
        self.program = Program(self.scheme, self.spec, seed, unpack_rows)
        self.state = self.program.start()

    # ------------------------------------------------------------------ one time step

    def run(self, until: int, callback: Callable[[Training], Any] | None = None) -> None:
        """Train until so many total environment steps, or until someone asks to stop."""
        started, before = time.perf_counter(), self.seconds
        if self.time_step == 0:
            self.collector.start()
        while self.total_steps < until and not self.stop_requested:
            try:
                if self.backlog_done < self.backlog:
                    self._update()
                else:
                    previous = self._step(until)
                    self.seconds = before + time.perf_counter() - started
                    self._record(previous, last=self.total_steps >= until)
            except TrainingStopped as error:
                raise TrainingStopped(f"at total step {self.total_steps}: {error}") from error
            if callback is not None and callback(self) is False:
                break
        self.seconds = before + time.perf_counter() - started

    def _step(self, until: int) -> int:
        """One time step and what is due after it; how many total steps there were before."""
        previous = self.total_steps
        self.time_step += 1
        active = self.rhythm.active(until - previous)
        if self.moments is not None:
            self.moments.update(self.collector.observations[active])
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is self.state:
            actions = ahead[1]
        else:
            actions = self._actions(self.time_step)
        early = self._update_early(len(active))
        due = self._collect(actions, active)
        self.backlog, self.backlog_done = due.backlog, 0
        for left in reversed(range(due.updates - early)):
            self._update(last=left == 0)
        if due.review:
            self._review()
        return previous

    def _collect(self, actions: np.ndarray | jax.Array, active: np.ndarray) -> Due:
        rows, episodes = self.collector.step(np.asarray(actions), active)
        ended = [episode.learner for episode in episodes]
        if self.rollout is None:
            self.replay.add(rows)
        else:
            self.rollout.add(rows[0], self._scaling, bool(ended))
        self.total_steps += len(rows)
        for episode in episodes:
            self._remember(episode)
        return self.rhythm.after(self.time_step, active, ended)

    @property
    def _scaling(self) -> Scaling | None:
        """What observations are normalised by now."""
        return None if self.moments is None else self.moments.scaling

    def _actions(self, time_step: int) -> np.ndarray | jax.Array:
        """An action for every environment copy at this step, without waiting for it."""
        if time_step <= self.scheme.random_steps:
            draw = keys.generator(self.options.seed, "random_action", time_step)
            count, size = self.scheme.num_envs, self.spec.action_size
            if self.spec.discrete:
                return draw.integers(0, size, count)
            return draw.uniform(-1, 1, (count, size)).astype(np.float32)
        observations = normalise(self.collector.observations, self._scaling)
        return self.program.act(self.state, observations, time_step)

    def _remember(self, episode: Episode) -> None:
        if self.scheme.counts(self.time_step - episode.length + 1):
            returns = self.recent_returns[episode.learner]
            returns[:-1] = returns[1:]
            returns[-1] = episode.total
        self._window.episodes.append(list(episode))

    def _update_early(self, coming: int) -> int:
        """The first updates due after this step, as far as they need none of the rows to come."""
        due = self.rhythm.updates_after(self.time_step)
        return next((done for done in range(due) if not self._update(coming)), due)

    def _update(self, coming: int = 0, last: bool = False) -> bool:
        """One update, unless it is to learn from one of so many rows that are still to come.

        last: of this step, so that the environments' next step may begin beside it.
        """
        number = self.updates + 1
        with_policy = self.scheme.with_policy(number, self.backlog_done, self.backlog)
        count = self.scheme.num_batches(with_policy)
        rows, scaling = self._batches(number, count, coming)
        if rows is None:
            return False
        self.updates = number
        # On several devices a program waits for the one before it, even if it needs nothing of it.
        early = last and not with_policy and self.moments is None
        actions = self._actions(self.time_step + 1) if early else None
        self.state, metrics = self.program.learn(self.state, rows, scaling, number, with_policy)
        if actions is not None:
            self._ahead = (self.state, actions)
        self.total_updates += count
        self.backlog_done += 1
        # The device is at work now: meanwhile look at what the update before this one gave.
        self._absorb_metrics()
        self._unread = (with_policy, metrics)
        return True

    def _batches(
        self, update: int, count: int, coming: int
    ) -> tuple[np.ndarray | None, Scaling | None]:
        """What an update learns from, and what its observations are still to be normalised by."""
        if self.rollout is not None:
            return self.rollout.take(), None
        draw = keys.generator(self.options.seed, "replay", update)
        return self.replay.sample(draw, (count, self._batch_size), coming), self._scaling

    @property
    def _batch_size(self) -> int:
        assert isinstance(self.config.algorithm, OffPolicy)
        return self.config.algorithm.batch_size

    def _absorb_metrics(self) -> None:
        """Read the last update's metrics, which waits for it; a number not finite stops the run."""
        if self._unread is not None:
            with_policy, metrics = self._unread
            self._unread = None
            self._window.add(self.program.metric_names(with_policy), np.asarray(metrics))

    def _review(self) -> None:
        draw = keys.generator(self.options.seed, "review", self.time_step)
        rows = self.replay.sample(draw, (self._batch_size,))
        assert rows is not None
        batch = unpack(self.spec, rows)
        observations = normalise(np.asarray(batch.observation), self._scaling)
        seen = chief.mean_returns(self.recent_returns).tolist()
        state, review = self.scheme.review(self.state, self.recent_returns, observations, draw)
        self.state = self.program.place(state)
        self.recent_returns[self.scheme.outdated(review)] = np.nan
        self.last_review = {"step": self.total_steps, **review, "recent_returns": seen}
        if self.folder is not None:
            self.folder.append("lineage", self.last_review)

    # ------------------------------------------------------------------ records

    def _record(self, previous: int, last: bool) -> None:
        """Write what is due by the multiples of its period that the last time step crossed."""

        def due(period: int) -> bool:
            return period > 0 and (last or self.total_steps // period > previous // period)

        log, options = due(self.options.log_period), self.options
        if log or due(options.checkpoint_period):
            self._absorb_metrics()
        if due(options.evaluation_period):
            self.evaluate()
        if log:
            if self.folder is not None:
                self.folder.append("metrics", self._metrics_row())
            self._window = MetricsWindow()
        if self.folder is not None and (last or due(options.checkpoint_period)):
            self.checkpoint()

    def _metrics_row(self) -> dict[str, Any]:
        seconds = max(self.seconds, 1e-9)
        return {
            "step": self.total_steps,
            "updates": self.total_updates,
            "seconds": round(seconds, 3),
            "steps_per_second": round(self.total_steps / seconds, 1),
            "recent_returns": chief.mean_returns(self.recent_returns).tolist(),
            "episodes": self._window.episodes,
            "learners": self._window.means(),
        }

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the population now, and record it."""
        champions = self.scheme.champions(self.state)
        row = self.evaluator.evaluate(
            champions,
            self.scheme.extra_champions,
            self.scheme.best(self.recent_returns),
            self.options.evaluation_episodes,
            self.total_steps,
            self._scaling,
        )
        self.last_evaluation = {
            "step": self.total_steps,
            "updates": self.total_updates,
            **row,
            "seconds": round(self.seconds, 3),
        }
        if self.folder is not None:
            self.folder.append("evaluations", self.last_evaluation)
        self.on_evaluation(self.last_evaluation)
        return self.last_evaluation

    # ------------------------------------------------------------------ out and in

    def policy(self) -> Policy:
        """The policy of the learner that the chief would pick now; of learner 0 if none yet."""
        best = self.scheme.best(self.recent_returns) or 0
        params = jax.device_get(pick(self.scheme.champions(self.state), best))
        env = self.config.env
        about = {
            **self.about_actions,
            "environment": None
            if env is None
            else {"id": env.id, "delay": env.delay, "kwargs": env.kwargs},
            "run": {
                "scheme": self.scheme.name,
                "seed": self.options.seed,
                "step": self.total_steps,
                "learner": best,
            },
        }
        return Policy(self.config.algorithm, params, self.spec, about, self._scaling)

    def snapshot(self) -> Snapshot:
        """Everything but the replay's rows, from which `resume` goes on to the bit."""
        self._absorb_metrics()
        arrays, environments = self.collector.snapshot()
        state = jax.device_get(flatten_names(self.state))
        return Snapshot(
            arrays={
                **{f"state/{name}": np.asarray(leaf) for name, leaf in state.items()},
                **{f"collector/{name}": array for name, array in arrays.items()},
                **{f"rhythm/{name}": array for name, array in self.rhythm.snapshot().items()},
                **{
                    f"{part}/{name}": array
                    for part, kept in self._optional_parts().items()
                    for name, array in kept.snapshot().items()
                },
                "recent_returns": self.recent_returns,
            },
            environments=environments,
            counters={
                "time_step": self.time_step,
                "total_steps": self.total_steps,
                "updates": self.updates,
                "total_updates": self.total_updates,
                "backlog": [self.backlog_done, self.backlog],
                "seconds": self.seconds,
                "window": self._window.to_json(),
                "positions": self.folder.positions() if self.folder is not None else {},
            },
        )

    def _optional_parts(self) -> dict[str, Any]:
        """What only some runs have, and keep in their checkpoints."""
        parts = {"rollout": self.rollout, "moments": self.moments}
        return {name: part for name, part in parts.items() if part is not None}

    def attach(self, folder: RunFolder) -> None:
        """Write records and checkpoints to this folder, which is claimed, from here on."""
        folder.open(self._positions, self.total_steps)
        self.folder = folder
        self.checkpoints = Checkpoints(folder.path / "checkpoints")
        self.checkpoints.remove_leftovers()

    def checkpoint(self) -> None:
        """Write a checkpoint and the best policy into the run folder."""
        assert self.checkpoints is not None
        assert self.folder is not None
        self.policy().save(self.folder.path / "policy.safetensors")
        self.checkpoints.write(self.total_steps, self.snapshot(), self.replay)

    def resume(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot whose replay rows have been put back already."""
        groups: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        for name, array in snapshot.arrays.items():
            if "/" in name:
                group, rest = name.split("/", 1)
                groups[group][rest] = array
        state = unflatten_names(self.state, groups["state"], "the checkpoint")
        self.state = self.program.place(state)
        self.recent_returns = snapshot.arrays["recent_returns"].copy()
        counters = snapshot.counters
        self.time_step, self.total_steps = counters["time_step"], counters["total_steps"]
        self.updates, self.seconds = counters["updates"], counters["seconds"]
        self.total_updates = counters["total_updates"]
        self.backlog_done, self.backlog = counters["backlog"]
        self.rhythm.resume(groups["rhythm"])
        for part, kept in self._optional_parts().items():
            kept.resume(groups[part])
        self._window = MetricsWindow.from_json(counters["window"])
        self._positions = counters["positions"]
        if self.time_step > 0:
            self.collector.resume(groups["collector"], snapshot.environments)
            if self.rollout is not None and not snapshot.environments:
                self.rollout.end_episode()

    def close(self) -> None:
        """Close environments and files."""
        self.collector.close()
        self.evaluator.close()
        if self.folder is not None:
            self.folder.close()
