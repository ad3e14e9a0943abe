"""Does the chief's work, or a record, grow faster than the population? Up to 1,000 learners.

    python benchmarks/thousand_learners.py         writes results/thousand_learners.json

P3S with networks of 8 units on Pendulum-v1, 16 learners to a shard, all shards in one process.
Printed for every N: the time of the chief's decision, the largest rows of the records, and the time
in which an own step of all learners is played, with their exponents between the two largest N: 1 is
proportional to N.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from p3s.config.run import resolve
from p3s.learning import devices
from p3s.runs import opening

SIZES = (10, 100, 1000)
PER_SHARD = 16
OWN_STEPS = 100


def measure(num_learners: int) -> dict[str, float]:
    """What one population costs."""
    config = resolve(
        "Pendulum-v1", "p3s", preset="paper", num_learners=num_learners, hidden_sizes=(8,),
        batch_size=8, initial_steps=20, review_period=20, buffer_size=50 * num_learners,
        steps=OWN_STEPS * num_learners, evaluation_period=OWN_STEPS * num_learners,
        evaluation_episodes=1, metrics_period=50 * num_learners, checkpoint_period=0,
        shards=math.ceil(num_learners / PER_SHARD), exchange_period=10,
    )  # fmt: skip
    decided: list[float] = []
    with TemporaryDirectory() as folder:
        training: Any = opening.begin(config, Path(folder) / "run")
        decide = type(training.scheme).decide

        def timed(scheme: Any, *arguments: Any) -> Any:
            started = time.perf_counter()
            decision = decide(scheme, *arguments)
            decided.append(time.perf_counter() - started)
            return decision

        type(training.scheme).decide = timed
        training.run(40 * num_learners)
        started = time.perf_counter()
        training.run(90 * num_learners)
        step = (time.perf_counter() - started) / 50
        training.run(config.options.steps)
        type(training.scheme).decide = decide
        rows = {
            stream: max(len(line) for line in (Path(folder) / "run" / f"{stream}.jsonl").open())
            for stream in ("metrics", "evaluations", "lineage")
        }
        training.close()
    return {"decision_seconds": statistics.median(decided), "own_step_seconds": step, **rows}


def main() -> None:
    devices.prepare()
    found: dict[str, Any] = {str(n): measure(n) for n in SIZES}
    small, large = (found[str(n)] for n in SIZES[-2:])
    span = math.log(SIZES[-1] / SIZES[-2])
    found["exponent"] = {name: math.log(large[name] / small[name]) / span for name in large}
    for name, values in found.items():
        print(name, {key: round(value, 6) for key, value in values.items()})
    Path("results/thousand_learners.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
