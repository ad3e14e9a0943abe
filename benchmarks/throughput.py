"""Throughput of p3s beside Stable-Baselines3, SBX and the machine's matrix-product limit.

    make bench      or      python benchmarks/throughput.py [--seconds 8] [--rounds 3]

Everything runs in a process of its own, one after another, on the same task: TD3 on
HalfCheetah-v5, networks 400-300, batch 100, one update per environment step of a learner.
Steps/s are environment steps over all learners; for all of them they equal learner-updates/s.
The cases take turns, since a machine's speed may change within minutes; medians are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ENV = "HalfCheetah-v5"
OBSERVATION, ACTION, HIDDEN, BATCH = 17, 6, (400, 300), 100
WARM_UP_STEPS = 300


def flops_per_update(guided: bool) -> float:
    """Floating-point operations in the matrix products of one learner's average update."""
    first, second = HIDDEN
    policy = OBSERVATION * first + first * second + second * ACTION
    value = (OBSERVATION + ACTION) * first + first * second + second
    policy_hidden, value_hidden = first * second + second * ACTION, first * second + second
    # Value step: target policy, two target values, two values; back: weights and hidden inputs.
    value_step = policy + 2 * value + 2 * value + 2 * (value + value_hidden)
    # Policy step, every second update: policy, value, back through the value to the action and
    # through the policy; the guide forward.
    policy_step = policy + value + value + policy + policy_hidden + (policy if guided else 0)
    return 2 * BATCH * (value_step + policy_step / 2)


def measure_limit(seconds: float) -> dict:
    """The fastest fp32 matrix products: large square ones, and those of the networks' own shape."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def rate(left: tuple, right: tuple, flops: float) -> float:
        draw = np.random.default_rng(0)
        a, b = (jnp.asarray(draw.random(shape), jnp.float32) for shape in (left, right))
        product = jax.jit(jnp.matmul)
        product(a, b).block_until_ready()
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds / 4:
            product(a, b).block_until_ready()
            count += 1
        return count * flops / (time.perf_counter() - started) / 1e9

    first, second = HIDDEN
    square = rate((2000, 2000), (2000, 2000), 2 * 2000**3)
    own = rate((8, BATCH, first), (8, first, second), 2 * 8 * BATCH * first * second)
    return {"square_gflops": square, "own_shape_gflops": own}


def measure_p3s(num_learners: int, evaluation: bool, seconds: float) -> dict:
    from p3s import devices
    from p3s.config import resolve
    from p3s.envs import make_env
    from p3s.train import Training

    devices.prepare()
    period = 4000 if evaluation else 0
    config = resolve(ENV, num_learners=num_learners, initial_steps=100, evaluation_period=period)
    training = Training(config, lambda: make_env(ENV))
    warm = max(WARM_UP_STEPS, 150 * num_learners)
    training.run(warm, lambda now: now.total_steps < warm)
    first, started = training.total_steps, time.perf_counter()
    whole = 4000 if evaluation else 0

    def go_on(now: Training) -> bool:
        enough = time.perf_counter() - started >= seconds
        return not enough or (whole > 0 and now.total_steps % whole >= num_learners)

    training.run(10**9, go_on)
    elapsed = time.perf_counter() - started
    rate = (training.total_steps - first) / elapsed
    return {"steps_per_second": rate, "gflops": rate * flops_per_update(True) / 1e9}


def measure_sb3(seconds: float) -> dict:
    import gymnasium
    import torch
    from stable_baselines3 import TD3

    torch.set_num_threads(os.cpu_count() or 1)
    model = TD3(
        "MlpPolicy", gymnasium.make(ENV), learning_starts=100, train_freq=1, gradient_steps=1,
        batch_size=BATCH, policy_kwargs={"net_arch": list(HIDDEN)}, device="cpu", seed=0,
    )  # fmt: skip
    return _measure_model(model, seconds)


def measure_sbx(seconds: float) -> dict:
    import gymnasium
    from sbx import TD3

    model = TD3(
        "MlpPolicy", gymnasium.make(ENV), learning_starts=100, train_freq=1, gradient_steps=1,
        batch_size=BATCH, policy_kwargs={"net_arch": list(HIDDEN)}, seed=0,
    )  # fmt: skip
    return _measure_model(model, seconds)


def _measure_model(model, seconds: float) -> dict:
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Starts after the warm-up, stops when the time is over."""

        def __init__(self) -> None:
            super().__init__()
            self.started, self.first = 0.0, 0

        def _on_step(self) -> bool:
            if self.num_timesteps == WARM_UP_STEPS:
                self.started, self.first = time.perf_counter(), self.num_timesteps
            self.elapsed = time.perf_counter() - self.started
            return self.num_timesteps < WARM_UP_STEPS or self.elapsed < seconds

    clock = Clock()
    model.learn(10**9, callback=clock)
    rate = (model.num_timesteps - clock.first) / clock.elapsed
    return {"steps_per_second": rate, "gflops": rate * flops_per_update(False) / 1e9}


def run_alone(case: list[str], seconds: float) -> dict:
    """One measurement in a fresh process."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--case", *case]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "failed"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(case: list[str], seconds: float) -> dict:
    match case:
        case ["limit"]:
            return measure_limit(seconds)
        case ["sb3"]:
            return measure_sb3(seconds)
        case ["sbx"]:
            return measure_sbx(seconds)
        case ["p3s", count, evaluation]:
            return measure_p3s(int(count), evaluation == "evaluated", seconds)
    raise SystemExit(f"unknown case {case}")


def medians(rounds: list[dict]) -> dict:
    """The median of each number over the rounds, or the first error."""
    failed = [result for result in rounds if "error" in result]
    if failed:
        return failed[0]
    return {key: statistics.median(result[key] for result in rounds) for key in rounds[0]}


def table(results: dict[str, dict]) -> str:
    limit, own = (results["limit"][key] for key in ("square_gflops", "own_shape_gflops"))
    lines = [
        f"matrix-product limit: {limit:.0f} GFLOP/s (2000 x 2000), "
        f"{own:.0f} GFLOP/s (8 x 100x400x300, the networks' own shape)",
        "",
        f"{'':<24}{'steps/s':>9}{'GFLOP/s':>9}{'of limit':>10}{'of own':>8}"
        f"{'x SB3':>7}{'x SBX':>7}",
    ]
    for name, result in results.items():
        if name == "limit":
            continue
        if "error" in result:
            lines.append(f"{name:<24}{result['error']}")
            continue
        rate, gflops = result["steps_per_second"], result["gflops"]
        ratios = [
            f"{rate / results[peer]['steps_per_second']:.2f}"
            if "steps_per_second" in results[peer]
            else "-"
            for peer in ("sb3", "sbx")
        ]
        lines.append(
            f"{name:<24}{rate:>9.0f}{gflops:>9.1f}{gflops / limit:>10.0%}{gflops / own:>8.0%}"
            f"{ratios[0]:>7}{ratios[1]:>7}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case has its turn")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.seconds)))
        return
    cases = {"limit": ["limit"], "sb3": ["sb3"], "sbx": ["sbx"]}
    for count in (1, 2, 4, 8, 16):
        cases[f"p3s N={count}"] = ["p3s", str(count), "alone"]
    for count in (1, 2, 4, 8, 16):
        cases[f"p3s N={count}, evaluated"] = ["p3s", str(count), "evaluated"]
    measured = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, case in cases.items():
            measured[name].append(run_alone(case, options.seconds))
            print(f"{name}: {measured[name][-1]}", file=sys.stderr, flush=True)
    results = {name: medians(rounds) for name, rounds in measured.items()}
    machine = {"cores": os.cpu_count(), "system": platform.platform()}
    options.out.write_text(
        json.dumps({"machine": machine, "results": results, "rounds": measured}, indent=2) + "\n"
    )
    print(table(results))


if __name__ == "__main__":
    main()
