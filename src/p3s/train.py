"""The only training loop (Appendix H).

    for every time step
        each learner acts in its own environment copy           updater, environments
        its transition goes into the common replay              experience
        what the scheme's rhythm says is due                    rhythm
            from T_initial on: each learner updates             updater, by way of the scheme
            every M steps: the chief reviews the population     chief, by way of the scheme
        every R_eval total steps: an evaluation                 evaluation
        every now and then: a row of metrics, a checkpoint      runs

A run is its parts: each can be snapshotted and resumed, so a checkpoint is a loop over them.
Everything random follows from seed, name and step, so a resumed run draws what the uninterrupted
one would have drawn.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import jax

from p3s import chief
from p3s.callbacks import StopRule, from_options
from p3s.config import Config
from p3s.envs import Adapter, adapted, expecting
from p3s.envs.workers import make_copies
from p3s.errors import ShardLost, TrainingStopped, UserError
from p3s.evaluation import EvaluationQueue, Evaluator, unstack
from p3s.experience.kinds import make_experience
from p3s.experience.normalization import RunningMoments, Scaling, Unnormalized
from p3s.experience.returns import make_returns
from p3s.learning.counters import Counters
from p3s.learning.divergence import DivergenceGuard
from p3s.learning.health import Checkup, Health
from p3s.learning.metrics import MetricsWindow
from p3s.learning.updater import Updater
from p3s.policy import Policy, policy_of
from p3s.runs.best_policy import BestPolicy
from p3s.runs.records import NoFolder, RunFolder
from p3s.suitability import check_environment
from p3s.trees import pick
from p3s.types import Episode, Params


class Training:
    """A run in progress.

    overlap: let updates run while the environments step; results do not depend on it.
    """

    def __init__(self, config: Config, make: Callable[[], Adapter], overlap: bool = True) -> None:
        config.check()
        self.config, self.scheme, self.options = config, config.scheme, config.options
        make = adapted(make, config.algorithm.observations_seen)
        example = make()
        check_environment(config, example)
        self.spec, self.about_spaces = example.env_spec, example.about_spaces()
        example.close()
        self.make = expecting(make, self.spec)
        self.rhythm = self.scheme.rhythm()
        self.returns = make_returns(self.scheme)
        self.counters = Counters()
        self.evaluations = EvaluationQueue(self._make_workers(overlap))
        self.health = Health(self.scheme)
        self.best_policy = BestPolicy()
        self.folder: RunFolder | NoFolder = NoFolder()
        self.stop_requested, self._checkpoint_due = False, False
        options = self.options
        self.callbacks = from_options(options.stop_at, options.patience, options.record_video)
        self.stop_reason: str | None = None
        """Why a callback ended the run; None if none did."""
        self.evaluated: list[dict[str, Any]] = []
        """The rows of all evaluations so far, those before a resume too."""
        self.stepping_seconds = 0.0
        self.last_review: dict[str, Any] = {}

    def _make_workers(self, overlap: bool) -> Evaluator:
        """Make what acts and learns; who evaluates it."""
        config, options, make = self.config, self.options, self.make
        normalized = config.algorithm.normalize_observations
        self.normalizer = RunningMoments(self.spec) if normalized else Unnormalized()
        self.experience = make_experience(config, self.spec, self.normalizer)
        self.environments = make_copies(
            make, self.scheme.num_envs, options.seed, options.env_workers, options.env_restarts,
            options.env_step_limit,
        )  # fmt: skip
        self.updater = Updater(
            self.scheme, self.spec, options.seed, self.experience, self.normalizer, self.counters,
            overlap, options.devices,
        )  # fmt: skip
        self.divergence = DivergenceGuard(
            self.updater, self.returns, self.counters, options.seed,
            replaces=options.on_divergence == "replace",
        )  # fmt: skip
        self.checkup = Checkup(self.scheme, self.spec, self.experience)
        return Evaluator(make, config.algorithm, options.seed, options.evaluation_workers)

    def run(self, until: int, callback: Callable[[Training], Any] | None = None) -> None:
        """Train until this many total environment steps, or until a stop is requested."""
        started, before = time.perf_counter(), self.counters.seconds
        if self.counters.time_step == 0:
            self._start()
        while self.total_steps < until and not self.stop_requested:
            try:
                if not self._work_off():
                    previous = self.total_steps
                    self._step(until)
                    self.counters.seconds = before + time.perf_counter() - started
                    self._tell("step")
                    self._record(previous, last=self.total_steps >= until)
            except TrainingStopped as error:
                kind = ShardLost if isinstance(error, ShardLost) else TrainingStopped
                raise kind(f"at total step {self.total_steps}: {error}") from error
            if callback is not None and callback(self) is False:
                break
        self._collect_evaluations(wait=True)
        if self.stop_reason is not None:
            self.checkpoint()
        self._tell("end")
        self.counters.seconds = before + time.perf_counter() - started

    def _start(self) -> None:
        """Begin the first episodes."""
        self.environments.start()

    def _work_off(self) -> bool:
        """Some of the updates that are due before the next step; False if there are none."""
        return self.updater.work_off()

    def _step(self, until: int) -> None:
        """One time step, and what is due after it."""
        counters, environments = self.counters, self.environments
        counters.time_step += 1
        active = self.rhythm.active(until - counters.total_steps)
        self.normalizer.see(environments.observations[active])
        actions = self.updater.actions(environments.observations)
        actions, replaced = self.divergence.sound_actions(actions, environments.observations)
        self._append("lineage", replaced)
        self.updater.run_ahead(self.rhythm.updates_after(counters.time_step), len(active))
        actions = jax.device_get(actions)
        started = time.perf_counter()
        transitions, episodes = environments.step(actions, active)
        self.stepping_seconds += time.perf_counter() - started
        if environments.lost:
            self.experience.cut()
            self.updater.metrics.add_lost(environments.lost)
            environments.lost = []
        ended = [episode.learner for episode in episodes]
        self.experience.add(transitions, active.tolist(), ended)
        counters.total_steps += len(active)
        for episode in episodes:
            self._note_episode(counters.time_step, episode)
        due = self.rhythm.after(counters.time_step, active, ended)
        self.updater.begin_backlog(due.backlog)
        self.updater.update(due.updates, environments.observations)
        self.updater.end_episodes(ended)
        if due.review:
            self._append("lineage", self.divergence.check())
            self.last_review = self.updater.review(self.returns)
            self._append("lineage", [self.last_review])
            self._tell("review", self.last_review)
            self.health.see_review(self.last_review)

    def _note_episode(self, time_step: int, episode: Episode) -> None:
        """Count a training episode that ended with this step."""
        self.metrics.add_episode(episode)
        if self.scheme.counts(time_step - episode.length + 1):
            self.returns.add(episode)

    @property
    def metrics(self) -> MetricsWindow:
        """What is reported since the last row of metrics.jsonl."""
        return self.updater.metrics

    @property
    def exact_resume(self) -> bool:
        """Whether a checkpoint holds the episodes in progress."""
        return self.environments.exact_resume

    @property
    def scaling(self) -> Scaling | None:
        """What observations are normalized by now."""
        return self.normalizer.scaling

    def champions(self) -> list[Params]:
        """The policies that the run is judged by, one by one, on the host."""
        return unstack(self.scheme.champions(self.updater.state))

    @property
    def champion_index(self) -> int:
        """The learner that the last evaluation found best.

        Before the first it is the one that the chief would pick, or learner 0.
        """
        if self.evaluated:
            return self.evaluated[-1]["champion"]
        return self.scheme.best(self.returns.values) or 0

    def champion(self, index: int) -> Params:
        """One of them."""
        return jax.device_get(pick(self.scheme.champions(self.updater.state), index))

    @property
    def total_steps(self) -> int:
        """Environment steps so far, over all copies."""
        return self.counters.total_steps

    # ------------------------------------------------------------------ records

    def _record(self, previous: int, last: bool) -> None:
        """Write what is due: a multiple of its period lies within the last time step."""

        def due(period: int) -> bool:
            return period > 0 and (last or self.total_steps // period > previous // period)

        log = due(self.options.log_period)
        overdue = self._checkpoint_due
        self._checkpoint_due = overdue or due(self.options.checkpoint_period)
        if log:
            self._settle()
        evaluation = due(self.options.evaluation_period)
        if evaluation:
            self._append("lineage", self.divergence.check())
            self.evaluations.begin(self)
        # A checkpoint holds no evaluation under way. So it is put off, but not for ever.
        in_time = overdue or any(callback.in_time for callback in self.callbacks)
        self._collect_evaluations(wait=last or (evaluation and in_time))
        if log:
            self.folder.append("metrics", self._metrics_row())
        if last or (self._checkpoint_due and not self.evaluations.under_way):
            self.checkpoint()

    def _metrics_row(self) -> dict[str, Any]:
        means = chief.mean_returns(self.returns.values).tolist()
        return self.metrics.row(self.counters, means)

    def _settle(self) -> None:
        """Wait for all metrics, and look at them."""
        self.updater.settle()
        means, updates = self.metrics.means(), self.counters.updates
        self.health.say(self.checkup.signs(self.updater.state, means, updates))

    def _append(self, stream: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.folder.append(stream, row)

    def _tell(self, event: str, *about: Any) -> None:
        """Let the callbacks know of an event; one that returns False stops the run."""
        for callback in self.callbacks:
            try:
                if getattr(callback, f"on_{event}")(self, *about) is False:
                    self.stop(f"{type(callback).__name__} stopped it")
            except UserError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise TrainingStopped(f"{type(callback).__name__} raised {what}") from error

    def stop(self, reason: str) -> None:
        """End the training after this step, with a checkpoint; for callbacks."""
        self.stop_requested, self.stop_reason = True, self.stop_reason or reason

    def leave_rules_that_are_met(self) -> list[str]:
        """Drop the rules by which the run would stop at once; the names of their options."""
        met = [each for each in self.callbacks if isinstance(each, StopRule)]
        met = [each for each in met if each.is_met(self.evaluated)]
        self.callbacks = [each for each in self.callbacks if each not in met]
        return [each.option for each in met]

    def record(self, values: dict[str, float]) -> None:
        """Write numbers of your own: a row of scalars.jsonl."""
        self.folder.append("scalars", {"step": self.total_steps, **values})

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the population now, and record it."""
        self.evaluations.begin(self)
        self._collect_evaluations(wait=True)
        return self.evaluated[-1]

    def _collect_evaluations(self, wait: bool) -> None:
        """Record the evaluations that are done, or wait for all of them."""
        for row, champion in self.evaluations.finished(wait, self.champion):
            self.evaluated.append(row)
            self.folder.append("evaluations", row)
            self.best_policy.see(champion, row)
            self._tell("evaluation", row)

    # ------------------------------------------------------------------ out and in

    @property
    def parts(self) -> dict[str, Any]:
        """Everything that a checkpoint holds except the replay's rows."""
        return {
            "counters": self.counters,
            "environments": self.environments,
            "experience": self.experience,
            "normalizer": self.normalizer,
            "rhythm": self.rhythm,
            "returns": self.returns,
            "state": self.updater,
            "metrics": self.updater.metrics,
            "best_policy": self.best_policy,
            "records": self.folder,
        }

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The values of every part, arrays or JSON, from which `resume` continues to the bit."""
        self._collect_evaluations(wait=True)
        self.updater.settle()
        return {name: part.snapshot() for name, part in self.parts.items()}

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> None:
        """Continue from a snapshot; the replay's rows are already in place."""
        for name, part in self.parts.items():
            part.resume(snapshot.get(name, {}))
        if not self.environments.continued:
            self.experience.cut()

    def checkpoint(self) -> None:
        """Write a checkpoint and the policies into the run folder."""
        self._checkpoint_due = False
        if not self.divergence.replaces:
            self.divergence.check()  # the last checkpoint must be one to go on from
        self.folder.checkpoint(self)
        self._tell("checkpoint")

    def attach(self, folder: RunFolder) -> None:
        """Write records and checkpoints to this folder, which is claimed, from now on."""
        folder.open(self.folder.snapshot(), self.total_steps)
        self.folder = folder

    def policy(self) -> Policy:
        """The champion's policy as it is now, see `champion_index`."""
        return policy_of(self)

    def close(self) -> None:
        """Close environments and files."""
        with contextlib.ExitStack() as closing:
            for part in (self.folder, self.evaluations, self.environments):
                closing.callback(part.close)
