"""Work on a study's trials, several at a time, each in its own process.

    until nothing is left to do, here or in other processes that share the study
        if a trial's process has ended: note how, and free its cores
        if cores are free: claim a trial and start it
        show how the study stands

A trial whose process died is claimed again, here or elsewhere, and continues from its checkpoint.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from p3s.errors import UserError
from p3s.report.formatting import duration_text, score_text
from p3s.study.launching import CellProcess, Launcher
from p3s.study.scheduler import POLL_SECONDS, catching_signals, how_it_ended
from p3s.study.worker import FAILED, STOPPED
from p3s.tuning.study import Tuning, counted

TRIAL = "p3s.tuning.trial"
"""The module that runs a trial."""
LOOK_SECONDS = 1.0
"""Time between two looks at the study."""
MOST_DEATHS = 3
"""Processes that a trial may lose before it has failed."""
FIRST_FAILURES = 3
"""The search ends if this many trials have failed before any has finished."""


@dataclass(frozen=True)
class Goal:
    """How many trials, and how."""

    trials: int
    """Finished trials that are wanted."""
    most: int
    """Trials, whatever became of them, after which none is begun."""
    discard_checkpoints: bool = False


@dataclass
class _Running:
    number: int
    process: CellProcess
    share: Any


class Workers:
    """Runs trials until there are enough of them, or until a signal asks to stop."""

    def __init__(
        self,
        tuning: Tuning,
        goal: Goal,
        launcher: Launcher,
        console: Console,
        trial_seconds: float | None = None,
    ) -> None:
        self._tuning, self._goal, self._console = tuning, goal, console
        self._trial_seconds = trial_seconds
        self._launcher, self._shares = launcher, list(launcher.shares)
        self._running: list[_Running] = []
        self._signals: list[int] = []
        self._obeyed = 0
        self._shown = {t.number for t in tuning.trials if t.state.is_finished()}
        self._began, self._finished_before = time.monotonic(), counted(tuning.trials)["finished"]

    def run(self) -> int:
        """Run trials; the exit code is 0 if there are enough, 1 if not, or 128 + the signal."""
        next_look = 0.0
        goal = self._goal.trials, self._goal.most
        with catching_signals(self._signals), self._console.status("") as status:
            while True:
                ended = self._reap()
                self._obey_signals()
                if ended or time.monotonic() >= next_look:
                    next_look = time.monotonic() + LOOK_SECONDS
                    if not self._signals:
                        self._start()
                    status.update(self._show())
                    self._refuse_hopeless()
                    if not self._running and (self._signals or self._tuning.is_done(*goal)):
                        break
                time.sleep(POLL_SECONDS)
        if self._signals:
            return 128 + self._signals[0]
        return int(counted(self._tuning.trials)["finished"] < self._goal.trials)

    # ------------------------------------------------------------------ processes

    def _start(self) -> None:
        while self._shares:
            claim = self._tuning.claim(self._goal.trials, self._goal.most)
            if claim is None:
                return
            if not claim.is_new:
                self._say(f"trial {claim.number}: continues where it stopped")
            order = {
                "folder": str(self._tuning.folder),
                "storage": self._tuning.storage,
                "study": self._tuning.name,
                "proposals": list(self._tuning.proposals),
                "number": claim.number,
                "discard_checkpoints": self._goal.discard_checkpoints,
            }
            share = self._shares.pop(0)
            log = self._tuning.log(claim.number)
            try:
                process = self._launcher.launch(order, share, claim.lock, log)
                os.ftruncate(claim.lock, 0)
                os.pwrite(claim.lock, f"{process.pid}\n".encode(), 0)
            finally:
                os.close(claim.lock)
            self._running.append(_Running(claim.number, process, share))

    def _reap(self) -> bool:
        """Note which processes have ended; whether any has."""
        ended = [each for each in self._running if each.process.poll() is not None]
        for each in ended:
            self._running.remove(each)
            self._shares.append(each.share)
            code = each.process.poll()
            if code not in (0, FAILED, STOPPED, None) and not self._signals:
                self._note_death(each.number, how_it_ended(code))
            elif code == FAILED:
                self._check_told(each.number)
        return bool(ended)

    def _note_death(self, number: int, how: str) -> None:
        """A process is gone; its trial goes on in another one, unless that happens too often."""
        trial = self._tuning.trial(number)
        deaths = trial.user_attrs.get("deaths", 0) + 1
        self._say(f"trial {number}: its process {how}")
        if self._state(number) != "RUNNING":
            return
        trial.set_user_attr("deaths", deaths)
        if deaths >= MOST_DEATHS:
            self._tuning.fail(number, f"its process {how}, the {deaths}th time")

    def _check_told(self, number: int) -> None:
        """A process that failed has said so in the study, unless it could not."""
        if self._state(number) == "RUNNING":
            self._note_death(number, f"ended early: {self._tuning.log(number)}")

    def _state(self, number: int) -> str:
        return next(t.state.name for t in self._tuning.trials if t.number == number)

    def _obey_signals(self) -> None:
        """On the first signal the processes write a checkpoint; the second kills them."""
        if len(self._signals) == self._obeyed:
            return
        first, self._obeyed = self._obeyed == 0, len(self._signals)
        for each in self._running:
            each.process.send_signal(signal.SIGTERM if first else signal.SIGKILL)
        if first and self._running:
            self._say("stopping: trials write a checkpoint first (interrupt again to kill)")

    def stop(self) -> None:
        """Stop what is running, with checkpoints."""
        for each in self._running:
            each.process.send_signal(signal.SIGTERM)

    # ------------------------------------------------------------------ what people see

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _refuse_hopeless(self) -> None:
        """End the search where the first trials have all failed."""
        states = counted(self._tuning.trials)
        if states["FAIL"] < FIRST_FAILURES or states["finished"]:
            return
        self.stop()
        error = next(t.user_attrs.get("error") for t in self._tuning.trials if t.user_attrs)
        raise UserError(f"the first {states['FAIL']} trials have all failed: {error}")

    def _show(self) -> str:
        """Print the trials that have ended since the last look; how the study stands."""
        trials = self._tuning.trials
        best = best_of(trials)
        for each in trials:
            if each.state.is_finished() and each.number not in self._shown:
                self._shown.add(each.number)
                self._say(self._about(each, trials))
        finished = counted(trials)["finished"]
        parts = [f"{finished} of {self._goal.trials} trials"]
        if best is not None:
            parts.append(f"best {score_text(best.value)} (trial {best.number})")
        if (left := self._seconds_left(finished)) is not None:
            parts.append(f"about {duration_text(left)} left")
        return " · ".join(parts)

    def _about(self, trial: Any, trials: list[Any]) -> str:
        """A line about a trial that has ended."""
        what = {
            "COMPLETE": f"score {score_text(trial.value)}",
            "PRUNED": f"pruned at {score_text(trial.value)}",
        }.get(trial.state.name, f"failed: {trial.user_attrs.get('error')}")
        finished, best = counted(trials)["finished"], best_of(trials)
        so_far = "" if best is None else f", best {score_text(best.value)} (trial {best.number})"
        left = self._seconds_left(finished)
        rest = "" if not left else f", about {duration_text(left)} left"
        done = f"{finished} of {self._goal.trials} trials{so_far}{rest}"
        return f"trial {trial.number}: {what}  [{done}]"

    def _seconds_left(self, finished: int) -> float | None:
        """Time for the trials that are missing, at the pace of this call, or as estimated."""
        missing = max(self._goal.trials - finished, 0)
        here = finished - self._finished_before
        if here > 0:
            return missing * (time.monotonic() - self._began) / here
        if self._trial_seconds is None:
            return None
        return missing * self._trial_seconds / len(self._launcher.shares)


def best_of(trials: list[Any]) -> Any | None:
    """The complete trial with the highest value; None if there is none."""
    complete = [t for t in trials if t.state.name == "COMPLETE"]
    return max(complete, key=lambda t: t.value, default=None)
