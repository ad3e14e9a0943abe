"""Noiseless returns under the paper's protocol (Section 4.1).

    every R_eval total steps, each learner plays 10 noiseless episodes;
    the score is the maximum over learners of their mean returns

On-policy algorithms are judged by their stochastic policies, as in the paper; the noiseless
returns are recorded too.

A maximum over N is biased upwards, so every return is kept, and the learner with the highest mean,
the champion, plays again on fresh episodes; so does the learner that the chief would pick by its
training returns. Both streams of episodes start alike for every method and number of learners.
Worker processes may play while the training goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import note
from p3s.evaluation.playing import EPISODES_TOGETHER, Player, Stream, Unit, cut_into_units
from p3s.evaluation.workers import Workers
from p3s.experience.normalization import Scaling
from p3s.machine import available_cores
from p3s.trees import unstack
from p3s.types import Params
from p3s.workers.remote import CannotWork

WORTH_WORKERS = 2.0
"""Seconds of an evaluation from which on workers are started for the next ones."""


class Play:
    """Units that are being played."""

    def __init__(self, evaluator: Evaluator, units: list[Unit], episodes: int) -> None:
        self._evaluator, self._units, self._episodes = evaluator, units, episodes
        self._futures = evaluator.submit(units)

    def done(self) -> bool:
        """Whether `returns` need not wait."""
        return all(future.done() for future in self._futures)

    def returns(self) -> np.ndarray:
        """The returns of each policy, (policies, episodes); waits for them."""
        played = [
            self._evaluator.result(unit, future)
            for unit, future in zip(self._units, self._futures, strict=True)
        ]
        return np.concatenate(played).reshape(-1, self._episodes)


class PendingEvaluation:
    """An evaluation that is being played: all policies, then the chosen ones on fresh episodes."""

    def __init__(self, evaluator: Evaluator, field: Field) -> None:
        self._evaluator, self._field = evaluator, field
        self._judged = evaluator.play_units(field, range(len(field.policies)), "evaluation")
        self._fresh: Play | None = None
        self.done()

    def done(self) -> bool:
        """Whether `row` need not wait; lets the chosen ones play when all others have."""
        if self._fresh is None and self._judged.done():
            self._play_fresh()
        return self._fresh is not None and self._fresh.done()

    def _play_fresh(self) -> Play:
        """Let the champion and the chief's pick play again."""
        if self._fresh is None:
            chosen = self._field.chosen(self._judged.returns())
            self._fresh = self._evaluator.play_units(self._field, chosen, "fresh_evaluation")
        return self._fresh

    def row(self) -> dict[str, Any]:
        """The row of evaluations.jsonl, without counters and times; waits for it."""
        fresh = self._play_fresh().returns()
        return self._field.row(self._judged.returns(), fresh)


class Field(NamedTuple):
    """Who takes part in an evaluation, and how they are judged."""

    policies: list[Params]
    """On the host; `extras` last."""
    extras: tuple[str, ...]
    """Names of the last of them, which do not count for the score."""
    chief_pick: int | None
    """Whom the chief would pick by training returns."""
    episodes: int
    step: int
    scaling: Scaling | None
    stochastic: bool
    """Judged with the policies' own noise; noiseless episodes are played too."""

    def _means(self, judged: np.ndarray) -> np.ndarray:
        """Mean return of each learner."""
        learners = len(self.policies) - len(self.extras)
        return judged[:learners].mean(axis=1)

    def chosen(self, judged: np.ndarray) -> list[int]:
        """Who plays fresh episodes: the learner with the highest mean, and the chief's pick."""
        champion = int(self._means(judged).argmax())
        if self.chief_pick is None or self.chief_pick == champion:
            return [champion]
        return [champion, self.chief_pick]

    def row(self, judged: np.ndarray, fresh: np.ndarray) -> dict[str, Any]:
        """What was played as a row; with noise first, noiseless after it."""
        noiseless: dict[str, Any] = {}
        if self.stochastic:
            judged, quiet = np.split(judged, 2)
            fresh, quiet_fresh = np.split(fresh, 2)
            noiseless = {
                "deterministic_returns": quiet.tolist(),
                "deterministic_score": float(self._means(quiet).max()),
                "deterministic_champion_return": float(quiet_fresh[0].mean()),
            }
        means = self._means(judged)
        return {
            "learner_returns": judged[: len(means)].tolist(),
            "score": float(means.max()),
            "mean": float(means.mean()),
            "champion": int(means.argmax()),
            "champion_return": float(fresh[0].mean()),
            "chief_pick": self.chief_pick,
            "chief_return": None if self.chief_pick is None else float(fresh[-1].mean()),
            **{
                f"{name}_returns": judged[len(means) + index].tolist()
                for index, name in enumerate(self.extras)
            },
            **noiseless,
        }


class Evaluator:
    """Judges populations; `workers` is a number of processes, or None for as many as are worth it.

    None plays the first evaluation in this process. If it takes long and there are several cores,
    the next ones are played by as many workers as there are cores.
    """

    def __init__(
        self,
        make: Callable[[], Adapter],
        algorithm: Algorithm,
        seed: int,
        workers: int | None = 0,
    ) -> None:
        self._about = make, algorithm, seed
        self._stochastic = algorithm.on_policy
        self.player = Player(make, algorithm, seed)
        self.workers: Workers | None = None
        self._undecided = workers is None
        if workers:
            self._start_workers(workers)

    def _start_workers(self, count: int) -> None:
        try:
            self.workers = Workers(*self._about, count)
        except CannotWork as error:
            self._do_without(error)

    def _do_without(self, reason: CannotWork) -> None:
        note(f"evaluations are played in this process: {reason}")
        if self.workers is not None:
            self.workers.close()
            self.workers = None

    def submit(self, units: list[Unit]) -> list[Future[np.ndarray]]:
        """Let workers play units, or play them now."""
        if self.workers is not None:
            return [self.workers.submit(unit) for unit in units]
        return [done(self.player.play(unit)) for unit in units]

    def result(self, unit: Unit, future: Future[np.ndarray]) -> np.ndarray:
        """The returns of a unit; played here if workers cannot."""
        try:
            return future.result()
        except CannotWork as error:
            if self.workers is not None:
                self._do_without(error)
            return self.player.play(unit)

    def play(
        self,
        policies: Params,
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
        explore: bool = False,
    ) -> np.ndarray:
        """Returns of every stacked policy in this process, (policies, episodes).

        scaling: what observations are normalized by; explore: with the policies' own noise.
        """
        apart = unstack(policies)
        learners = list(range(len(apart)))
        units = cut_into_units(apart, learners, "evaluation", episodes, step, scaling, explore)
        return np.concatenate([self.player.play(unit) for unit in units]).reshape(-1, episodes)

    def play_units(self, field: Field, learners: Sequence[int], stream: Stream) -> Play:
        """Let some of the field play their episodes of a stream."""
        policies = [field.policies[learner] for learner in learners]
        about = list(learners), stream, field.episodes, field.step, field.scaling
        units = cut_into_units(policies, *about, field.stochastic)
        if field.stochastic:
            units += cut_into_units(policies, *about, False)
        return Play(self, units, field.episodes)

    def begin(
        self,
        policies: list[Params],
        extras: tuple[str, ...],
        chief_pick: int | None,
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
    ) -> PendingEvaluation:
        """Begin an evaluation of these policies, which are on the host.

        extras: names of the last of them, which do not count for the score.
        """
        started = time.perf_counter()
        stochastic = self._stochastic
        field = Field(policies, extras, chief_pick, episodes, step, scaling, stochastic)
        pending = PendingEvaluation(self, field)
        if self._undecided:
            self._undecided = False
            long, cores = time.perf_counter() - started > WORTH_WORKERS, len(available_cores())
            # Workers on an accelerator would take its memory from the run.
            if long and cores > 1 and jax.default_backend() == "cpu":
                units = len(policies) * -(-episodes // EPISODES_TOGETHER)
                self._start_workers(min(cores, units))
        return pending

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """`begin` and wait for the row."""
        return self.begin(*arguments, **options).row()

    def close(self) -> None:
        """Close the environments and end the workers."""
        self.player.close()
        if self.workers is not None:
            self.workers.close()
            self.workers = None


def done(returns: np.ndarray) -> Future[np.ndarray]:
    """Returns that need not be waited for."""
    future: Future[np.ndarray] = Future()
    future.set_result(returns)
    return future
