"""A study of Optuna with its folder: what is searched, and who works on which trial.

folder/trials/<number>/seed-<s>/   run folders
       locks/<number>              held by the process that works on the trial
       locks/study                 held for a moment by a process that looks for work
       logs/<number>.log           the output of a trial's processes
       best.toml                   the best configuration

    claim     under the lock of the study
        a trial that is running, and whose lock nobody holds: its process is gone, go on with it
        else a new trial, unless finished and running ones are enough
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from p3s import keys
from p3s.config.run import resolve_spec
from p3s.errors import UserError
from p3s.machine import require_optuna
from p3s.runs.files import make_folder
from p3s.runs.locks import try_lock, wait_for_lock
from p3s.tuning.declaration import VERSION, Declaration, Proposals, flat
from p3s.tuning.storage import open_storage

KEY = "p3s"
"""The attribute of a study that keeps its declaration."""
FINISHED = ("COMPLETE", "PRUNED")


class Claim(NamedTuple):
    """A trial to work on, and the open file that holds its lock."""

    number: int
    lock: int
    is_new: bool


class Tuning:
    """A study of Optuna, its declaration and its folder."""

    def __init__(self, folder: Path, storage: str, name: str, proposals: Proposals) -> None:
        self.folder, self.storage, self.name = folder, storage, name
        self.proposals = proposals
        backend = open_storage(storage)
        for each in ("trials", "locks", "logs"):
            make_folder(folder / each)
        with self._alone():
            create = require_optuna().create_study
            self.study = create(
                storage=backend, study_name=name, direction="maximize", load_if_exists=True
            )

    def declare(self, declared: Declaration) -> None:
        """Keep the declaration with a new study; UserError if it is of something else."""
        wanted = declared.to_json()
        with self._alone():
            kept = self.study.user_attrs.get(KEY)
            if kept is None and self.trials:
                raise self._other("was not made by p3s tune")
            if kept is None:
                self.study.set_user_attr("folder", str(self.folder.resolve()))
                self.study.set_user_attr(KEY, wanted)
        if kept is not None:
            self._compare(kept, wanted)
        self.declared = declared
        self._ready()

    def reopen(self) -> None:
        """Take the declaration from the study."""
        self.declared = Declaration.from_json(self.study.user_attrs[KEY])
        self._ready()

    def _ready(self) -> None:
        options = resolve_spec(self.declared.spec, check=False).options
        self.seed = options.seed
        self.evaluations = -(-options.steps // max(options.evaluation_period, 1))
        self.study.pruner = self.proposals.make_pruner(self.evaluations * self.declared.seeds)

    def _compare(self, kept: Any, wanted: dict[str, Any]) -> None:
        if not isinstance(kept, dict) or kept.get("version") != VERSION:
            raise self._other("is of another version of p3s")
        if kept["env"] != wanted["env"]:
            raise self._other(f"tunes {kept['env']}, not {wanted['env']}")
        before, now = flat(kept), flat(wanted)
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                was, given = (_said(values.get(key)) for values in (before, now))
                raise self._other(f"was started with {key} = {was}, not {given}")
        folder = Path(self.study.user_attrs.get("folder", self.folder))
        if folder.exists() and folder.resolve() != self.folder.resolve():
            raise UserError(f"study {self.name!r} keeps its trials in {folder}: --out {folder}")

    def _other(self, what: str) -> UserError:
        return UserError(
            f"study {self.name!r} in {self.storage} {what}: choose another --study-name"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from looking for work at the same time."""
        lock = wait_for_lock(self.folder / "locks" / "study")
        try:
            yield
        finally:
            os.close(lock)

    # ------------------------------------------------------------------ trials

    @property
    def trials(self) -> list[Any]:
        """All trials, as they stand now."""
        return self.study.get_trials(deepcopy=False)

    def trial(self, number: int) -> Any:
        """A trial that can be told of its evaluations."""
        (frozen,) = (each for each in self.trials if each.number == number)
        return require_optuna().trial.Trial(self.study, frozen._trial_id)

    def run(self, number: int, seed: int) -> Path:
        """The run folder of a trial's seed, counted from 0."""
        return self.folder / "trials" / str(number) / f"seed-{self.seed + seed}"

    def log(self, number: int) -> Path:
        """The file with the output of a trial's processes."""
        return self.folder / "logs" / f"{number}.log"

    def claim(self, wanted: int, most: int) -> Claim | None:
        """A trial that nobody works on, with all its parameters; None if there is none."""
        with self._alone():
            trials = self.trials
            for each in (each for each in trials if each.state.name == "RUNNING"):
                if (lock := try_lock(self._lock(each.number))) is not None:
                    return self._claimed(self.trial(each.number), lock, is_new=False)
            states = counted(trials)
            if states["finished"] + states["RUNNING"] >= wanted or len(trials) >= most:
                return None
            self._seed_sampler(len(trials))
            trial = self.study.ask()
            lock = try_lock(self._lock(trial.number))
            assert lock is not None  # locks are taken in here alone
            return self._claimed(trial, lock, is_new=True)

    def _claimed(self, trial: Any, lock: int, is_new: bool) -> Claim:
        """The claim of a trial; parameters that it has not drawn yet are drawn."""
        self._seed_sampler(trial.number)
        for name, space in self.declared.spaces.items():
            space.suggest(trial, name)
        return Claim(trial.number, lock, is_new)

    def _seed_sampler(self, number: int) -> None:
        """Draw what a trial tries by its number, whatever process asks."""
        self.study.sampler = self.proposals.make_sampler(keys.integer(self.seed, "tune", number))

    def _lock(self, number: int) -> Path:
        return self.folder / "locks" / str(number)

    def is_done(self, wanted: int, most: int) -> bool:
        """Whether nothing is left to do, here or elsewhere."""
        trials = self.trials
        states = counted(trials)
        enough = states["finished"] >= wanted or len(trials) >= most
        return enough and not states["RUNNING"]

    def fail(self, number: int, error: str) -> None:
        """Record that a trial has failed, and why."""
        self.trial(number).set_user_attr("error", error.strip().split("\n")[0])
        self.study.tell(number, state=require_optuna().trial.TrialState.FAIL)


def counted(trials: list[Any]) -> Counter[str]:
    """How many trials are in each state; those that are complete or pruned are finished."""
    states = Counter(each.state.name for each in trials)
    states["finished"] = sum(states[name] for name in FINISHED)
    return states


def _said(value: Any) -> str:
    return "the default" if value is None else json.dumps(value)
