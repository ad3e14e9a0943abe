"""Run a trial in its own process: `python -m p3s.tuning.trial`, its order on stdin.

for each seed that has no value yet
    continue its run if it has started, else start it
    after every evaluation: tell Optuna, and stop if it prunes the trial
    the seed's value: the mean score of its last evaluations
the trial's value: the mean of its seeds' values

told to stop, or who started it is gone      checkpoint; the trial is left running
an error                                     the trial has failed
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from p3s.callbacks import Callback, StopRule
from p3s.envs.mujoco_setup import warn_once
from p3s.errors import UserError
from p3s.learning import devices
from p3s.machine import require_optuna
from p3s.study.worker import FAILED, STOPPED, StopRequest, discard_checkpoints, open_run
from p3s.train import Training
from p3s.tuning.declaration import Proposals
from p3s.tuning.study import Tuning

LAST_EVALUATIONS = 3
"""How many evaluations make up the value of a seed: one alone is luck."""


def value_of(evaluations: list[dict[str, Any]]) -> float:
    """The value of a seed, or what it would be if it ended now."""
    return float(np.mean([row["score"] for row in evaluations[-LAST_EVALUATIONS:]]))


class Reporter(Callback):
    """Tells Optuna of a seed's evaluations, and ends a run that is not worth going on."""

    def __init__(self, trial: Any, before: list[float], first: int, last: int) -> None:
        self._trial, self._before = trial, before
        self._first, self._last = first, last
        self.pruned = False

    def on_evaluation(self, training: Training, row: dict[str, Any]) -> Any:
        value = value_of(training.evaluated)
        number = self._first + len(training.evaluated)
        report(self._trial, float(np.mean([*self._before, value])), number)
        if number < self._last and self._trial.should_prune():
            self.pruned = True
            training.stop("pruned")


def report(trial: Any, value: float, number: int) -> None:
    """Tell Optuna of a value; a resumed run comes by evaluations that it knows."""
    frozen = trial.study._storage.get_trial(trial._trial_id)
    if number not in frozen.intermediate_values:
        trial.report(value, number)


class TrialRun:
    """The runs of a trial, one seed after the other."""

    def __init__(self, tuning: Tuning, number: int, stop: StopRequest) -> None:
        self._tuning, self._number, self._stop = tuning, number, stop
        self._trial = tuning.trial(number)
        self._by_seed = tuning.proposals.pruner == "wilcoxon"
        self.values: list[float] = []
        self.pruned = False

    def run(self) -> bool:
        """Run what is left of the trial; whether it is finished."""
        seeds = self._tuning.declared.seeds
        for seed in range(seeds):
            key = f"seed {seed}"
            value = self._trial.user_attrs.get(key)
            if value is None:
                value = self._run_seed(seed)
                if value is None:
                    return self.pruned
                self._trial.set_user_attr(key, value)
            self.values.append(value)
            if self._by_seed:
                report(self._trial, value, seed)
                if seed + 1 < seeds and self._trial.should_prune():
                    self.pruned = True
                    return True
        return True

    def _run_seed(self, seed: int) -> float | None:
        """The value of a seed; None if it was pruned or told to stop."""
        config = self._tuning.declared.config(self._trial.params, seed)
        devices.prepare(config.options.devices)
        each = self._tuning.evaluations
        last = each * self._tuning.declared.seeds
        training = open_run(self._tuning.run(self._number, seed), config)
        try:
            reporter = Reporter(self._trial, list(self.values), seed * each, last)
            if not self._by_seed:
                training.callbacks.append(reporter)
            print(f"seed {config.options.seed}: from step {training.total_steps:,}", flush=True)
            rules = [rule for rule in training.callbacks if isinstance(rule, StopRule)]
            if not any(rule.is_met(training.evaluated) for rule in rules):
                training.run(config.options.steps, lambda training: not self._stop)
            self.pruned = reporter.pruned
            if reporter.pruned:
                return None
            done = training.total_steps >= config.options.steps or training.stop_reason is not None
            if self._stop and not done:
                training.checkpoint()
                print(f"stopped at step {training.total_steps:,}")
                return None
            value = value_of(training.evaluated)
        finally:
            training.close()
        if not math.isfinite(value):
            raise UserError(f"the score is not finite: {value}")
        return value


def run_trial(order: dict[str, Any]) -> int:
    """Run a trial until it is finished or told to stop, and return the exit code."""
    stop, number = StopRequest(order["scheduler"]), order["number"]
    proposals = Proposals(*order["proposals"])
    tuning = Tuning(Path(order["folder"]), order["storage"], order["study"], proposals)
    try:
        tuning.reopen()
        run = TrialRun(tuning, number, stop)
        if not run.run():
            return STOPPED
    except Exception as error:
        traceback.print_exc()
        what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        tuning.fail(number, what)
        return FAILED
    if run.pruned:
        tuning.study.tell(number, state=require_optuna().trial.TrialState.PRUNED)
    else:
        tuning.study.tell(number, float(np.mean(run.values)))
    if order["discard_checkpoints"]:
        for path in (tuning.folder / "trials" / str(number)).iterdir():
            discard_checkpoints(path)
    return 0


if __name__ == "__main__":
    warn_once(sys.stdout)
    sys.exit(run_trial(json.load(sys.stdin)))
