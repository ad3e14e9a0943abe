"""Start-up time and memory of p3s.

    python benchmarks/footprint.py

Start-up: from the start of the process to the end of its first policy update on HalfCheetah-v5,
without and with compiled programs in the cache. Memory: a full replay of 1M transitions against
the bytes of its array, and the growth of a training over its last 100,000 of 120,000 steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

FIRST_STEP = """
from p3s import Population
Population("HalfCheetah-v5", initial_steps=1, evaluation_period=0).learn(12, progress_bar=False)
"""


def resident_megabytes() -> float:
    with open("/proc/self/status") as lines:
        (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def start_up() -> None:
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            environment = {**os.environ, "XDG_CACHE_HOME": cache}
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", FIRST_STEP], env=environment, check=True)
            seconds = time.perf_counter() - started
            print(f"start-up to the first policy update, {name}: {seconds:.1f} s")


def replay_memory() -> None:
    import numpy as np

    from p3s.experience.replay import Ring
    from p3s.experience.rows import empty_rows
    from p3s.types import EnvSpec

    before = resident_megabytes()
    replay = Ring(empty_rows(1_000_000, EnvSpec.flat(17, 6)))
    rows = np.ones((1000, replay.rows.shape[1]), np.float32)
    for _ in range(1000):
        replay.add(rows)
    taken, array = resident_megabytes() - before, replay.rows.nbytes / 2**20
    print(f"full replay of 1M: {taken:.0f} MB for an array of {array:.0f} MB, {taken / array:.3f}x")


def growth() -> None:
    from p3s import Population

    population = Population(
        "Pendulum-v1", preset="paper", hidden_sizes=(16, 16), batch_size=16, buffer_size=10_000,
        evaluation_period=20_000,
    )  # fmt: skip
    population.learn(20_000, progress_bar=False)
    before = resident_megabytes()
    population.learn(100_000, progress_bar=False)
    print(f"growth over 100,000 steps: {resident_megabytes() - before:.1f} MB of {before:.0f} MB")


if __name__ == "__main__":
    start_up()
    replay_memory()
    growth()
