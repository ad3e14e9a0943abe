"""Noiseless returns under the paper's protocol (Section 4.1).

    every R_eval total steps, each learner plays 10 noiseless episodes;
    the score is the maximum over learners of their mean returns

On-policy algorithms are judged by their stochastic policies, as in the paper; the noiseless
returns are recorded too.

A maximum over N is biased upwards, so every return is kept, and the learner that the chief would
pick plays again on fresh episodes. Worker processes may play while the training goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import note
from p3s.evaluation.playing import Player, Unit, cut_into_units
from p3s.evaluation.workers import Workers
from p3s.experience.normalization import Scaling
from p3s.trees import pick
from p3s.types import Params
from p3s.worker_process import CannotWork, available_cores

WORTH_WORKERS = 2.0
"""Seconds of an evaluation from which on workers are started for the next ones."""


class PendingEvaluation:
    """An evaluation that is being played."""

    def __init__(self, evaluator: Evaluator, units: list[Unit], row: Callable[..., dict[str, Any]]):
        self._evaluator, self._units, self._row = evaluator, units, row
        self._futures = [evaluator.submit(unit) for unit in units]

    def done(self) -> bool:
        """Whether `row` needs not wait."""
        return all(future.done() for future in self._futures)

    def row(self) -> dict[str, Any]:
        """The row of evaluations.jsonl, without counters and times; waits for it."""
        returns = [
            self._evaluator.result(unit, future)
            for unit, future in zip(self._units, self._futures, strict=True)
        ]
        return self._row(returns)


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

    def submit(self, unit: Unit) -> Future[np.ndarray]:
        """Let a worker play a unit, or play it now."""
        if self.workers is not None:
            return self.workers.submit(unit)
        future: Future[np.ndarray] = Future()
        future.set_result(self.player.play(unit))
        return future

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
        groups: list[int],
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
        explore: bool = False,
    ) -> np.ndarray:
        """Returns of every stacked policy in this process, (groups, episodes).

        The seed of an episode depends on run seed, step, group and episode only.
        scaling: what observations are normalized by; explore: with the policies' own noise.
        """
        apart = unstack(policies, len(groups))
        units = cut_into_units(apart, groups, groups, episodes, step, scaling, explore)
        returns = [self.player.play(unit) for unit in units]
        return np.concatenate(returns).reshape(len(groups), episodes)

    def begin(
        self,
        champions: Params,
        extras: tuple[str, ...],
        picked: int | None,
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
    ) -> PendingEvaluation:
        """Begin an evaluation.

        extras: names of the last champions, which do not count for the score.
        """
        started = time.perf_counter()
        policies = unstack(champions, jax.tree.leaves(champions)[0].shape[0])
        count = len(policies)
        groups = list(range(count))
        judged, played, whose = list(policies), list(groups), list(groups)
        if picked is not None:
            # The champion's fresh episodes are one more group, with its own seeds.
            judged.append(policies[picked])
            played.append(count)
            whose.append(picked)
        units = cut_into_units(judged, played, whose, episodes, step, scaling, self._stochastic)
        num_judged = len(units)
        if self._stochastic:
            units += cut_into_units(policies, groups, groups, episodes, step, scaling, False)

        def row(returns: list[np.ndarray]) -> dict[str, Any]:
            played_returns = np.concatenate(returns[:num_judged]).reshape(-1, episodes)
            beside: dict[str, Any] = {}
            if self._stochastic:
                noiseless = np.concatenate(returns[num_judged:]).reshape(-1, episodes)
                beside = {
                    "deterministic_returns": noiseless.tolist(),
                    "deterministic_score": float(noiseless.mean(axis=1).max()),
                }
            return evaluation_row(played_returns, count, extras, picked) | beside

        pending = PendingEvaluation(self, units, row)
        if self._undecided:
            self._undecided = False
            long, cores = time.perf_counter() - started > WORTH_WORKERS, len(available_cores())
            # Workers on an accelerator would take its memory from the run.
            if long and cores > 1 and jax.default_backend() == "cpu":
                self._start_workers(min(cores, len(units)))
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


def unstack(policies: Params, count: int) -> list[Params]:
    """Stacked policies one by one, on the host."""
    on_host = jax.device_get(policies)
    return [pick(on_host, index) for index in range(count)]


def evaluation_row(
    returns: np.ndarray, count: int, extras: tuple[str, ...], picked: int | None
) -> dict[str, Any]:
    """Returns of all champions, and of the one that was picked again, as a row."""
    learners = count - len(extras)
    means = returns[:learners].mean(axis=1)
    return {
        "learner_returns": returns[:learners].tolist(),
        "score": float(means.max()),
        "mean": float(means.mean()),
        "champion": picked,
        "champion_return": None if picked is None else float(returns[-1].mean()),
        **{
            f"{name}_returns": returns[learners + index].tolist()
            for index, name in enumerate(extras)
        },
    }
