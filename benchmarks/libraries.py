"""Which library multiplies faster: updates/s of TD3 by width, learners and precision.

    python benchmarks/libraries.py [--rounds 5] [--seconds 1]

Eigen and YNNPACK take turns on the compiled updates of the same learners (HalfCheetah-v5, batch
100, preset `paper`), on a machine that does nothing else. Medians over the rounds; the ratio is the
median of the ratios within a round. `library_for` in p3s/learning/devices.py follows from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.learning import devices, program
from p3s.train import Training
from throughput import ENV, update_until

CASES = [
    *((count, (width, width), "float32") for width in (256, 512, 1024) for count in (1, 4)),
    *((count, (400, 300), "float32") for count in (1, 4, 16)),
    (4, (64, 64), "float32"),
    *((4, sizes, "bfloat16") for sizes in ((256, 256), (400, 300), (1024, 1024))),
]


def begin(library: devices.Library, count: int, sizes: tuple, precision: str) -> Training:
    """A training whose updates are multiplied by one of the libraries."""
    program.library_for = lambda algorithm: library
    program.compiled.cache_clear()
    config = resolve(
        ENV, preset="paper", num_learners=count, initial_steps=20, evaluation_period=0,
        hidden_sizes=sizes, precision=precision, buffer_size=10_000,
    )  # fmt: skip
    training = Training(config, lambda: make_env(ENV))
    training.run(40 * count)
    return training


def rate(training: Training, seconds: float) -> float:
    """Learner-updates per second."""
    started = time.perf_counter()
    count = update_until(training, lambda: time.perf_counter() - started >= seconds)
    return count / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("libraries.json"))
    options = parser.parse_args()
    devices.prepare()
    choose, found = program.library_for, []
    print(f"{'':<28}{'Eigen':>8}{'YNNPACK':>9}{'ratio':>7}  chosen")
    for count, sizes, precision in CASES:
        both = [begin(library, count, sizes, precision) for library in ("eigen", "ynnpack")]
        rounds = [
            [rate(training, options.seconds) for training in both]
            for _ in range(options.rounds + 1)
        ][1:]
        eigen, ynnpack = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(theirs / ours for ours, theirs in rounds)
        chosen = choose(both[0].config.algorithm)
        name = f"N={count}, {'-'.join(map(str, sizes))}, {precision}"
        print(f"{name:<28}{eigen:>8.0f}{ynnpack:>9.0f}{ratio:>7.2f}  {chosen}", flush=True)
        found.append(
            {"case": name, "eigen": eigen, "ynnpack": ynnpack, "ratio": ratio, "chosen": chosen}
        )
        for training in both:
            training.close()
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
