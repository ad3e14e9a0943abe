"""A long run: memory, open files and speed at its end are those of its beginning.

    300,000 steps with small networks and evaluations, in a process of its own
        at the end of every window: resident memory, open files, steps per second
        memory and files: the last window against that after a third, when the replay is full
        speed: the median of the last third against that of the first

The short form looks at open files only: a short run is still taking memory and compiling.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.helpers import small_config
from tests.helpers_faults import MakeFault

from campaign import Result
from p3s.config.run import Config, resolve
from p3s.learning import devices
from p3s.runs import opening

STEPS, SHORT_STEPS = 300_000, 2400
WINDOWS = 60
MEMORY_GROWTH, SPEED_LOSS = 0.02, 0.05
"""The most that memory may grow, and speed may drop."""


class Sample(NamedTuple):
    """What was seen at the end of a window."""

    step: float
    memory: float
    """Resident bytes."""
    files: float
    """Open files."""
    rate: float
    """Steps per second in this window."""


def run(short: bool) -> Result:
    """Play the run; three things may be lost: memory, files, speed."""
    if short:
        config = small_config(None, steps=SHORT_STEPS, checkpoint_period=200)
        samples = list(play(config, MakeFault("none", at=SHORT_STEPS)))
        losses = files_lost(samples)
    else:
        samples = play_alone()
        losses = [*memory_lost(samples), *files_lost(samples), *speed_lost(samples)]
    return Result("steps of a long run", int(samples[-1].step), len(losses), losses)


def settled(samples: list[Sample]) -> Sample:
    """The sample after a third of the run."""
    return samples[len(samples) // 3]


def memory_lost(samples: list[Sample]) -> list[str]:
    """What is to be said of memory."""
    before, after = settled(samples).memory, samples[-1].memory
    said = f"memory went from {before / 1e6:,.0f} to {after / 1e6:,.0f} MB"
    return [said] if after > (1 + MEMORY_GROWTH) * before else []


def files_lost(samples: list[Sample]) -> list[str]:
    """What is to be said of open files."""
    before, after = settled(samples).files, samples[-1].files
    return [f"open files went from {before:.0f} to {after:.0f}"] if after > before else []


def speed_lost(samples: list[Sample]) -> list[str]:
    """What is to be said of speed."""
    third, rates = len(samples) // 3, [sample.rate for sample in samples]
    before, after = statistics.median(rates[:third]), statistics.median(rates[-third:])
    said = f"steps per second went from {before:,.0f} to {after:,.0f}"
    return [said] if after < (1 - SPEED_LOSS) * before else []


def play(config: Config, make: MakeFault | None = None) -> Iterator[Sample]:
    """Train, and look at the process after every window."""
    steps = config.options.steps
    window, last_step, last_time = steps // WINDOWS, 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        training = opening.begin(config, Path(folder) / "run", make)
        while training.total_steps < steps:
            until = last_step + window
            training.run(steps, lambda now, until=until: now.total_steps < until)
            now = time.perf_counter()
            rate = (training.total_steps - last_step) / (now - last_time)
            last_step, last_time = training.total_steps, now
            files = len(os.listdir("/proc/self/fd"))
            yield Sample(last_step, resident_bytes(), files, rate)
        training.close()


def resident_bytes() -> int:
    """The memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def long_config(steps: int) -> Config:
    """A run whose episodes are always equally long, so that its speed does not depend on luck."""
    return resolve(
        "Pendulum-v1", "p3s", "td3", "paper", steps=steps, hidden_sizes=(32, 32), batch_size=32,
        buffer_size=steps // 6, evaluation_period=steps // 30, evaluation_episodes=2,
        evaluation_workers=0, checkpoint_period=steps // 20, metrics_period=max(steps // 300, 1),
    )  # fmt: skip


def play_alone(steps: int = STEPS) -> list[Sample]:
    """The samples of a long run in a process of its own, compiled as users have it."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "campaign.long_run", str(steps)]
    played = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    return [Sample(*map(float, line.split())) for line in played.stdout.splitlines()]


if __name__ == "__main__":
    devices.prepare()
    for sample in play(long_config(int(sys.argv[1]))):
        print(*sample)
