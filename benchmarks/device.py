"""Environments on a device beside those on the host: environment steps per second, and ratios.

    python benchmarks/device.py [--rounds 8] [--seconds 3] [--hidden 64 64] [--only NAME ...]

P3S-TD3 with four learners on Pendulum, 4 updates of each learner per time step, no evaluations.
All cases are trainings in one process that take turns; within a round each has the same time, and a
ratio is the median of the ratios within a round. Compiling and random steps come before.

    host            Pendulum-v1, Gymnasium's, one copy of each learner
    steps           func:phys2d/Pendulum-v0, step by step: the replay is on the host
    stretches       the same in stretches, each one program
    no reviews      stretches without a review every 250 own steps
    host 64, steps 64, stretches 64
                    64 copies of each learner, with as many updates per time step
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.learning import devices
from p3s.train import Training

HOST, DEVICE = "Pendulum-v1", "func:phys2d/Pendulum-v0"
LEARNERS, UPDATES, INITIAL = 4, 4, 250
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "host": (HOST, {}),
    "steps": (DEVICE, {"replay_device": "host"}),
    "stretches": (DEVICE, {}),
    "no reviews": (DEVICE, {"review_period": 10**9}),
    "host 64": (HOST, {"envs_per_learner": 64}),
    "steps 64": (DEVICE, {"envs_per_learner": 64, "replay_device": "host"}),
    "stretches 64": (DEVICE, {"envs_per_learner": 64}),
}


class Case:
    """A training that is continued in its turns."""

    def __init__(self, env: str, hidden: Sequence[int], fields: dict[str, Any]) -> None:
        common = {
            "num_learners": LEARNERS,
            "updates_per_step": UPDATES,
            "initial_steps": INITIAL,
            "random_steps": INITIAL,
            "hidden_sizes": tuple(hidden),
            "evaluation_period": 0,
            "steps": 10**9,
        }
        config = resolve(env, "p3s", "td3", **{**common, **fields})
        self.training = Training(config, partial(make_env, config.env))
        self._per_step = config.scheme.num_envs
        self._advance(INITIAL + 100)
        self.rates: list[float] = []

    def _advance(self, time_steps: int) -> None:
        self.training.run(self.training.total_steps + time_steps * self._per_step)
        jax.block_until_ready(self.training.crew.updater.state)

    def turn(self, seconds: float) -> None:
        """Train for about this long, and remember the environment steps per second."""
        first, started = self.training.total_steps, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            self._advance(128)
        elapsed = time.perf_counter() - started
        self.rates.append((self.training.total_steps - first) / elapsed)


def measure(rounds: int, seconds: float, hidden: Sequence[int], only: Sequence[str]) -> dict:
    """Rates and ratios to the first of the cases."""
    devices.prepare()
    cases = {}
    for name in only or CASES:
        env, fields = CASES[name]
        started = time.perf_counter()
        cases[name] = Case(env, hidden, fields)
        print(f"{name}: ready after {time.perf_counter() - started:.0f} s", flush=True)
    for case in cases.values():
        case.turn(seconds)  # memory that was not used for long may have to come back
        case.rates.clear()
    for _ in range(rounds):
        for case in cases.values():
            case.turn(seconds)
    first = next(iter(cases.values())).rates
    return {
        name: {
            "steps_per_second": statistics.median(case.rates),
            "ratio": statistics.median(
                own / other for own, other in zip(case.rates, first, strict=True)
            ),
        }
        for name, case in cases.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = measure(options.rounds, options.seconds, options.hidden, options.only)
    first, *_ = found
    print(
        f"\n| {platform.processor() or platform.machine()} | steps/s | × {first} |\n|---|---|---|"
    )
    for name, row in found.items():
        print(f"| {name} | {row['steps_per_second']:,.0f} | {row['ratio']:.2f} |")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
