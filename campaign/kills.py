"""Real kills: runs, and the processes that work for them, get SIGKILL at random moments.

    draw a run: scheme × algorithm × environment × preset × worker processes or shards; or a study,
        or a search of hyper-parameters
        run it undisturbed
        run it again: kill it or one of its processes at a random moment, resume, kill, resume, ...
        compare records and policies with the undisturbed ones, to the bit

A quarter of the kills fall into the start of a process, the others into its training. Half of the
runs are followed by a dashboard, which is killed too: nobody may notice, and the next one shows
what there is.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from campaign import Result
from campaign.processes import LONGEST, Command, children
from campaign.random_runs import RandomRun, draw_run, draw_study, draw_tuning, plain_run

KILLS, SHORT_KILLS = 1000, 2
LONGEST_LIFE = 0.3
"""Seconds of training, at most, between two kills."""
SETTLING = 0.5
"""Seconds in which a run that cannot do without a worker ends."""
STARTS = 0.25
"""Share of the kills that fall into the start of a process."""
LANES = 2
"""Runs that are killed at a time."""
OTHERS = {6: draw_study, 7: draw_tuning}
EVERY = 8
"""Of so many runs these are no runs."""
WATCHED = 0.5
"""Share of what is followed by a dashboard."""
FOLLOWER_KILLED = 0.3
"""How likely a kill is followed by one of the dashboard."""


def run(short: bool) -> Result:
    """Kill until there were enough kills."""
    tally = Tally(SHORT_KILLS if short else KILLS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(LANES) as pool:
        if short:
            survive(plain_run(Path(folder) / "0"), SHORT_KILLS, random.Random(0), tally)
        else:
            list(pool.map(lambda _: kill_runs(tally, Path(folder)), range(LANES)))
    return Result("kills", tally.kills, len(tally.losses), [*tally.losses, str(tally)])


@dataclass
class Tally:
    """What was killed so far, over all lanes."""

    wanted: int
    kills: int = 0
    runs: int = 0
    victims: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def killed(self, victim: str) -> None:
        """Count one kill."""
        with self.lock:
            self.kills += 1
            self.victims[victim] = self.victims.get(victim, 0) + 1

    def next_run(self) -> int | None:
        """The number of the next run; None if there were enough kills."""
        with self.lock:
            if self.kills >= self.wanted:
                return None
            self.runs += 1
            return self.runs - 1

    def __str__(self) -> str:
        counts = ", ".join(f"{count} of {victim}" for victim, count in sorted(self.victims.items()))
        return f"{self.runs} runs; kills {counts}"


def kill_runs(tally: Tally, folder: Path) -> None:
    """Draw and kill runs until there were enough kills."""
    while (number := tally.next_run()) is not None:
        rng = random.Random(number)
        draw = OTHERS.get(number % EVERY, draw_run)
        drawn = draw(number, rng, folder / str(number))
        kills = min(drawn.most_kills, tally.wanted - tally.kills)
        survive(drawn, kills, rng, tally)


def survive(drawn: RandomRun, kills: int, rng: random.Random, tally: Tally) -> None:
    """Kill a run so often, and note it if anything is lost."""
    try:
        kill_and_compare(drawn, kills, rng, tally)
    except AssertionError as error:
        with tally.lock:
            tally.losses.append(f"{drawn}: {error}")


def kill_and_compare(drawn: RandomRun, kills: int, rng: random.Random, tally: Tally) -> None:
    """Kill a run so often, unless it is complete before, and compare it with the whole one."""
    whole, parts = drawn.folder / "whole", drawn.folder / "parts"
    began = time.monotonic()
    code = Command(drawn.first(whole), drawn.folder / "whole.log").end()
    assert code == 0, f"exit code {code} without any kill"
    duration = time.monotonic() - began
    followers = Followers(drawn, tally) if rng.random() < WATCHED else None
    try:
        kill_until_done(drawn, kills, duration, rng, tally, followers)
        assert drawn.record(parts) == drawn.record(whole), f"other records than {whole}"
        if followers is not None:
            followers.check_last()
    finally:
        if followers is not None:
            followers.end()


def kill_until_done(
    drawn: RandomRun,
    kills: int,
    duration: float,
    rng: random.Random,
    tally: Tally,
    followers: Followers | None,
) -> None:
    """Let a run go on until it is complete, and kill it so often meanwhile."""
    parts = drawn.folder / "parts"
    code, life = None, 0
    while code != 0:
        words = drawn.again(parts) if drawn.has_begun(parts) else drawn.first(parts)
        command, before = Command(words, drawn.folder / f"{life}.log"), kills
        while kills and command.alive():
            kills -= kill_one(drawn, command, duration, rng, tally)
            if followers is not None and kills:
                kills -= followers.kill_one(rng)
        code, life = command.end(), life + 1
        assert code == 0 or kills < before, f"exit code {code} unkilled: {command.last_line()}"
        expected = (0, -signal.SIGKILL, *drawn.codes_without_worker)
        assert code in expected, f"exit code {code} after a kill: {command.last_line()}"


class Followers:
    """Dashboards of one folder, one after the other."""

    def __init__(self, drawn: RandomRun, tally: Tally) -> None:
        self._folder, self._tally, self._lives = drawn.folder, tally, 0
        self._start()

    def _start(self) -> None:
        self._lives += 1
        words = ["dashboard", self._folder, "--port", "0"]
        self._command = Command(words, self._folder / f"dashboard-{self._lives}.log")

    def kill_one(self, rng: random.Random) -> bool:
        """Kill the dashboard now and then, and start the next one; whether it was killed."""
        if rng.random() > FOLLOWER_KILLED:
            return False
        self._check()
        self.end()
        self._tally.killed("dashboards")
        self._start()
        return True

    def check_last(self) -> None:
        """One that is started when the run is complete shows it."""
        self._check()
        self.end()
        self._start()
        deadline = time.monotonic() + LONGEST
        while "http" not in self._command.printed() and time.monotonic() < deadline:
            self._check()
            time.sleep(0.05)
        shown = self._command.printed()
        assert shown[:1] in "123456789", f"a dashboard shows nothing: {shown[:200]}"

    def end(self) -> None:
        """Kill the dashboard."""
        self._command.kill()

    def _check(self) -> None:
        printed = self._command.printed()
        assert self._command.alive(), f"a dashboard ended: {self._command.last_line()}"
        assert "Traceback" not in printed, f"a dashboard broke: {printed[-500:]}"


def kill_one(
    drawn: RandomRun, command: Command, duration: float, rng: random.Random, tally: Tally
) -> bool:
    """Kill the run, or one of its processes, unless it ends before; whether something died."""
    parts = drawn.folder / "parts"
    if rng.random() < STARTS:
        command.wait(rng.uniform(0.0, duration / 2))
    else:
        drawn.wait_for_progress(parts, command)
        command.wait(rng.uniform(0.0, LONGEST_LIFE))
    victim = rng.choice([command.pid, *children(command.pid)])
    if not command.alive():
        return False
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:  # a worker that has ended by itself
        return False
    tally.killed(drawn.own_name if victim == command.pid else drawn.workers_name)
    command.wait(SETTLING)  # not every worker's end is the run's end
    return True
