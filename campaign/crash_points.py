"""Crash points: the world stops after every operation on the disk in turn.

A run with several checkpoints, and a population saved over older saves, are recorded once. After
every operation the disk is built as it could be found: all kept, all lost that was not synced, and
mixtures. Opening what is there must give the state at a checkpoint that was reported as written,
and none before the last such; records and policies must be whole. So are folders that are shared:
one with a card is as it was written. A journal of trials, which Optuna writes, is cut off at any
byte: what was recorded before is there, and it goes on.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers import SMALL, assert_same_state, small_config, state_of

import p3s
from campaign import Result
from campaign.simulated_disk import Crash, Operation, RecordedDisk, digest, using, write_tree
from p3s.config.spec import RunSpec
from p3s.errors import UserError
from p3s.policies.hub import HubName
from p3s.runs import checkpoints, opening
from p3s.runs.records import STREAMS
from p3s.sharing.bundle import CARD, FILES, Bundle, write_bundle
from p3s.tuning.asked import search_spaces
from p3s.tuning.declaration import Declaration, Proposals
from p3s.tuning.study import Tuning

SEGMENT_ROWS = 64
"""So that checkpoints share segments of the replay after a hundred steps."""


class Recorded(NamedTuple):
    """What was done, and how to tell whether it is still there."""

    name: str
    log: list[Operation]
    reported: list[int]
    """How long the log was when each checkpoint was reported as written."""
    check: Callable[[Path, int], None]
    """Opens the folder found after this many reports; raises if something is lost."""

    def num_reported(self, point: int) -> int:
        """How many checkpoints were reported when the log was so long."""
        return sum(at <= point for at in self.reported)


def run(short: bool) -> Result:
    """Try the crash points of a run and of saves."""
    before, checkpoints.SEGMENT_ROWS = checkpoints.SEGMENT_ROWS, SEGMENT_ROWS
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = [
                try_all(recorded(Path(folder)), Path(folder), short)
                for recorded in (recorded_run, recorded_saves, recorded_shares)
            ]
            results.append(cut_journals(Path(folder) / "journals", short))
    finally:
        checkpoints.SEGMENT_ROWS = before
    notes = [note for result in results for note in result.notes]
    tried = sum(result.tried for result in results)
    return Result("crash points", tried, sum(result.lost for result in results), notes)


def try_all(recorded: Recorded, folder: Path, short: bool) -> Result:
    """Stop after every operation; what was found before is not tried again."""
    name, log = recorded.name, recorded.log
    kinds = ["kept", "lost", *["mixed"] * (1 if short else 6)]
    points = range(1, len(log) + 1)
    if short:
        points = random.Random(0).sample(points, 5)
    tried, states, notes = 0, set[tuple[str, int]](), list[str]()
    for point in points:
        crash = Crash(log[:point])
        for index, kind in enumerate(kinds):
            tried += 1
            tree = crash.left(kind, random.Random(1000 * point + index))
            state = (digest(tree), recorded.num_reported(point))
            if state in states:
                continue
            states.add(state)
            found = folder / f"{name}-{point}-{index}"
            write_tree(found, tree)
            try:
                recorded.check(found, state[1])
            except (AssertionError, UserError) as error:
                notes.append(f"{name}: {kind} after {log[point - 1][:2]}: {str(error)[:300]}")
    lost = len(notes)
    count = f"{tried} crash points, {len(states)} states of the disk"
    notes.append(f"{name}: {len(log)} operations, {count}")
    return Result(name, tried, lost, notes)


def recorded_run(folder: Path) -> Recorded:
    """The log of a run with a checkpoint every 100 steps and one more at its end."""
    root = folder / "recorded"
    disk, states, reported, steps = RecordedDisk(root), dict[int, Any](), list[int](), list[int]()
    root.mkdir()
    with using(disk):
        config = small_config(steps=400, checkpoint_period=100, evaluation_period=200)
        training = opening.begin(config, root / "run")
        checkpoint = training.checkpoint

        def observed() -> None:
            checkpoint()
            reported.append(len(disk.log))
            steps.append(training.total_steps)
            states[training.total_steps] = state_of(training)

        training.checkpoint = observed
        training.run(400)
        observed()
        training.close()
    files = {name: root / "run" / f"{name}.jsonl" for name in STREAMS}
    streams = {name: file.read_bytes() for name, file in files.items() if file.exists()}

    def check(found: Path, num_reported: int) -> None:
        least = max(steps[:num_reported], default=0)
        try:
            training, _ = opening.reopen(found / "run")
        except UserError:
            assert least == 0, f"the checkpoint at step {least} cannot be resumed"
            return
        step, positions = training.total_steps, training.folder.snapshot()
        training.close()
        assert step >= least, f"resumed at step {step} after a checkpoint at {least}"
        if step:
            assert_same_state(state_of(training), states[step])
        for name, content in streams.items():
            rows = (found / "run" / f"{name}.jsonl").read_bytes()
            assert rows == content[: positions[name]], f"{name} is not what it was"
        if least:
            assert p3s.load(found / "run").about["run"]["step"] >= 0

    return Recorded("run", disk.log, reported, check)


def recorded_saves(folder: Path) -> Recorded:
    """The log of populations saved to one folder: of the same step, and of an earlier one."""
    root = folder / "recorded-saves"
    disk, reported, states = RecordedDisk(root), list[int](), list[Any]()
    root.mkdir()
    for seed, steps in ((1, 200), (2, 200), (3, 100)):
        population = p3s.Population("InvertedPendulum-v5", seed=seed, **SMALL)
        population.learn(steps, progress_bar=False)
        with using(disk):
            population.save(root / "saved")
        states.append((seed, state_of(population.training)))
        reported.append(len(disk.log))

    def check(found: Path, last: int) -> None:
        allowed = dict(states[max(last - 1, 0) : last + 1])
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # notes on damage are expected
                loaded = p3s.Population.load(found / "saved").training
        except UserError:
            assert last == 0, f"save {last} cannot be loaded"
            return
        seed = loaded.options.seed
        assert seed in allowed, f"found save {seed} after save {last}"
        assert_same_state(state_of(loaded), allowed[seed])

    return Recorded("saves", disk.log, reported, check)


def recorded_shares(folder: Path) -> Recorded:
    """The log of two policies shared from one folder, by their cards and results."""
    root, name = folder / "recorded-shares", HubName("somebody/pendulum")
    disk, reported, states = RecordedDisk(root), list[int](), [dict[str, bytes]()]
    root.mkdir()
    for seed in (1, 2):
        population = p3s.Population("InvertedPendulum-v5", seed=seed, **SMALL)
        population.learn(100, progress_bar=False)
        population.save(folder / f"shared-{seed}")
        # Without evaluations there is no curve: matplotlib writes by itself.
        bundle = Bundle(folder / f"shared-{seed}", name, episodes=1, video=False)
        with using(disk), contextlib.redirect_stderr(io.StringIO()):
            write_bundle(bundle, root / "shared")
        states.append({file.name: file.read_bytes() for file in (root / "shared").iterdir()})
        reported.append(len(disk.log))

    def check(found: Path, last: int) -> None:
        shared = found / "shared"
        if not (shared / CARD).exists():
            assert last < len(reported), "a card that was written is gone"
            return
        content = {file.name: file.read_bytes() for file in shared.iterdir() if file.name in FILES}
        assert content in states[max(last, 1) : last + 2], f"a card of another folder after {last}"
        p3s.load(shared)

    return Recorded("shares", disk.log, reported, check)


def cut_journals(folder: Path, short: bool) -> Result:
    """Cut a journal off at every byte, open it, and record one trial more."""

    journal = folder / "journal.log"

    def tuning() -> Tuning:
        spec = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000})
        made = Tuning(folder, str(journal), "mine", Proposals())
        made.declare(Declaration(spec, search_spaces(spec, ["learning_rate"]), 1))
        return made

    def trials(made: Tuning) -> list[Any]:
        return [(t.state.name, t.params, t.value) for t in made.trials]

    whole, ends, known = tuning(), list[int](), list[Any]()
    for score in (1.0, 2.0):
        claim = whole.claim(9, 9)
        assert claim is not None
        os.close(claim.lock)
        whole.study.tell(claim.number, score)
        ends.append(journal.stat().st_size)
        known.append(trials(whole))
    content, notes = journal.read_bytes(), list[str]()
    places = range(len(content) + 1)
    for place in random.Random(0).sample(places, 10) if short else places:
        journal.write_bytes(content[:place])
        try:
            made = tuning()
            done = sum(end <= place for end in ends)
            assert trials(made)[:done] == known[max(done - 1, 0)][:done], "a trial is another"
            claim = made.claim(9, 9)
            assert claim is not None
            os.close(claim.lock)
            made.study.tell(claim.number, 3.0)
            assert trials(tuning()) == trials(made), "what was recorded is another"
        except (AssertionError, UserError) as error:
            notes.append(f"journal cut off at byte {place}: {str(error)[:300]}")
    tried = 10 if short else len(places)
    return Result("journals", tried, len(notes), [*notes, f"journals: {tried} places"])
