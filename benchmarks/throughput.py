"""Throughput of p3s beside Stable-Baselines3, SBX and the machine's matrix-product limit.

    make bench      or      python benchmarks/throughput.py [--rounds 10] [--seconds 2]

TD3 on HalfCheetah-v5, networks 400-300, batch 100, one update per environment step of a learner,
10,000 random steps before the first update (the paper's T_initial). Steps/s are environment steps
over all learners; for all of them they equal learner-updates/s.

Every case is a process of its own. They are started one after another and then take turns of a few
seconds, all others standing still, since a machine's speed may change within minutes. Rates are
medians over the rounds, ratios medians of the ratios within a round. Cases with the paper's
evaluation come last, one whole evaluation period each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from p3s.config import resolve
from p3s.envs import make_env
from p3s.learning import devices
from p3s.train import Training

ENV = "HalfCheetah-v5"
OBSERVATION, ACTION, HIDDEN, BATCH = 17, 6, (400, 300), 100
RANDOM_STEPS, EVALUATION_PERIOD = 10_000, 4000
COUNTS = (1, 2, 4, 8, 16)
PEERS = ("sb3", "sbx")


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


class Turns:
    """Waits for its turn on standard input, and answers with what it measured."""

    def __init__(self) -> None:
        self._started, self._first, self._seconds = 0.0, 0, 0.0

    def begin(self, steps: int) -> bool:
        """Wait for a turn, which starts at so many steps; False when there will be none."""
        line = sys.stdin.readline()
        if not line:
            return False
        self._seconds, self._first = float(line), steps
        self._started = time.perf_counter()
        return True

    @property
    def over(self) -> bool:
        return time.perf_counter() - self._started >= self._seconds

    def rate(self, steps: int) -> float:
        """Steps per second in this turn so far."""
        return (steps - self._first) / (time.perf_counter() - self._started)


def answer(result: dict) -> None:
    print(json.dumps(result), flush=True)


def serve_limit() -> None:
    """The fastest fp32 matrix products: large square ones, and those of the networks' own shape."""

    def rate(left: tuple, right: tuple, flops: float) -> Callable[[float], float]:
        draw = np.random.default_rng(0)
        a, b = (jnp.asarray(draw.random(shape), jnp.float32) for shape in (left, right))
        product = jax.jit(jnp.matmul)
        product(a, b).block_until_ready()

        def measure(seconds: float) -> float:
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                product(a, b).block_until_ready()
                count += 1
            return count * flops / (time.perf_counter() - started) / 1e9

        return measure

    first, second = HIDDEN
    square = rate((2000, 2000), (2000, 2000), 2 * 2000**3)
    own = rate((8, BATCH, first), (8, first, second), 2 * 8 * BATCH * first * second)
    answer({"ready": True})
    for line in sys.stdin:
        seconds = float(line) / 2
        answer({"square_gflops": square(seconds), "own_shape_gflops": own(seconds)})


def serve_p3s(num_learners: int, mode: str) -> None:
    """A training, evaluated or not, or its compiled updates alone."""
    devices.prepare()
    evaluated = mode == "evaluated"
    period = EVALUATION_PERIOD if evaluated else 0
    initial = RANDOM_STEPS // num_learners
    config = resolve(
        ENV,
        preset="paper",
        num_learners=num_learners,
        initial_steps=initial,
        evaluation_period=period,
    )
    training = Training(config, lambda: make_env(ENV))
    # What is compiled at the first update, evaluation and review of the chief is behind us then.
    training.run(10**9, lambda now: not now.last_review)
    if evaluated:
        training.run(10**9, lambda now: now.total_steps % period >= num_learners)
    answer({"ready": True})
    turns = Turns()
    if mode == "updates":
        serve_updates(training, turns)
        return
    while turns.begin(training.total_steps):
        training.run(
            10**9,
            lambda now: not turns.over or (evaluated and now.total_steps % period >= num_learners),
        )
        jax.block_until_ready(training.updater.state)
        report(turns.rate(training.total_steps), guided=True)


def serve_updates(training: Training, turns: Turns) -> None:
    """Updates of one set of minibatches, each dispatched before the one before it is done."""
    count = training.scheme.num_learners
    updater = training.updater
    batches = training.experience.take(1, count, coming=0)
    assert batches is not None
    while turns.begin(0):
        state, number, before = updater.state, 0, None
        while number % 2 or not turns.over:
            number += 1
            pattern = (number % 2 == 0,)
            state, metrics = updater.program.learn(state, [batches], number, pattern)
            if before is not None:
                jax.block_until_ready(before)
            before = metrics
        updater.state = jax.block_until_ready(state)
        report(turns.rate(number * count), guided=True)


def serve_peer(name: str) -> None:
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback

    options: dict = {}
    if name == "sb3":
        import torch
        from stable_baselines3 import TD3

        torch.set_num_threads(os.cpu_count() or 1)
        options["device"] = "cpu"
    else:
        from sbx import TD3

    class TakeTurns(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.turns, self.started = Turns(), False

        def _on_step(self) -> bool:
            steps = self.num_timesteps
            if steps < RANDOM_STEPS + 300 or (self.started and not self.turns.over):
                return True
            if self.started:
                report(self.turns.rate(steps), guided=False)
            else:
                answer({"ready": True})
            self.started = True
            return self.turns.begin(steps)

    model = TD3(
        "MlpPolicy", gymnasium.make(ENV), learning_starts=RANDOM_STEPS, train_freq=1,
        gradient_steps=1, batch_size=BATCH, policy_kwargs={"net_arch": list(HIDDEN)}, seed=0,
        **options,
    )  # fmt: skip
    model.learn(10**9, callback=TakeTurns())


def report(rate: float, guided: bool) -> None:
    answer({"steps_per_second": rate, "gflops": rate * flops_per_update(guided) / 1e9})


def serve(case: list[str]) -> None:
    match case:
        case ["limit"]:
            serve_limit()
        case ["p3s", count, mode]:
            serve_p3s(int(count), mode)
        case [peer]:
            serve_peer(peer)


class Case:
    """A process that stands still until it has its turn."""

    def __init__(self, case: list[str]) -> None:
        command = [sys.executable, __file__, "--case", *case]
        pipe, self._said = subprocess.PIPE, tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._said, text=True
        )
        self.error: str | None = None
        self._read()

    def turn(self, seconds: float) -> dict:
        """What the case measured in so many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._said.seek(0)
        said = self._said.read().strip().splitlines()
        self.error = said[-1] if said else "failed"
        return {}

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def median_ratio(rounds: list[dict], key: str, others: list[dict], other_key: str) -> float | None:
    """The median of the ratios within a round."""
    ratios = [ours[key] / theirs[other_key] for ours, theirs in zip(rounds, others, strict=False)]
    return statistics.median(ratios) if ratios else None


def summary(measured: dict[str, list[dict]]) -> dict[str, dict]:
    """Medians of every case, and its ratios to the peers and the limit."""
    results: dict[str, dict] = {}
    for name, rounds in measured.items():
        if not rounds:
            continue
        medians = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        if name != "limit":
            for key in ("square_gflops", "own_shape_gflops"):
                medians[f"of_{key}"] = median_ratio(rounds, "gflops", measured["limit"], key)
            for peer in PEERS:
                medians[f"x_{peer}"] = median_ratio(
                    rounds, "steps_per_second", measured[peer], "steps_per_second"
                )
        results[name] = medians
    return results


def table(results: dict[str, dict], errors: dict[str, str]) -> str:
    limit = results["limit"]
    lines = [
        f"matrix-product limit: {limit['square_gflops']:.0f} GFLOP/s (2000 x 2000), "
        f"{limit['own_shape_gflops']:.0f} GFLOP/s (8 x 100x400x300, the networks' own shape)",
        "",
        f"{'':<24}{'steps/s':>9}{'GFLOP/s':>9}{'of limit':>10}{'of own':>8}"
        f"{'x SB3':>7}{'x SBX':>7}",
    ]
    for name, result in results.items():
        if name == "limit":
            continue
        shares = [f"{result[f'of_{key}']:.0%}" for key in ("square_gflops", "own_shape_gflops")]
        ratios = [result[f"x_{peer}"] for peer in PEERS]
        shown = ["-" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        lines.append(
            f"{name:<24}{result['steps_per_second']:>9.0f}{result['gflops']:>9.1f}"
            f"{shares[0]:>10}{shares[1]:>8}{shown[0]:>7}{shown[1]:>7}"
        )
    return "\n".join([*lines, *(f"{name}: {error}" for name, error in errors.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="turns of every case")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--no-evaluation", action="store_true", help="leave out what is evaluated")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        serve(options.case)
        return
    names = {"limit": ["limit"], **{peer: [peer] for peer in PEERS}}
    names |= {f"p3s N={count}": ["p3s", str(count), "training"] for count in COUNTS}
    names["p3s N=4, updates alone"] = ["p3s", "4", "updates"]
    measured: dict[str, list[dict]] = {name: [] for name in names}
    errors: dict[str, str] = {}
    cases = {}
    for name, case in names.items():
        cases[name] = Case(case)
        print(f"{name}: {cases[name].error or 'ready'}", file=sys.stderr, flush=True)
        if cases[name].error is not None:
            errors[name] = cases.pop(name).error or ""
    for number in range(options.rounds):
        for name, case in cases.items() if number % 2 else reversed(cases.items()):
            measured[name].append(case.turn(options.seconds))
        rates = {
            name: rounds[-1].get("steps_per_second") for name, rounds in measured.items() if rounds
        }
        print(f"round {number + 1}: {rates}", file=sys.stderr, flush=True)
    for case in cases.values():
        case.stop()
    for count in () if options.no_evaluation else COUNTS:
        name, case = f"p3s N={count}, evaluated", Case(["p3s", str(count), "evaluated"])
        measured[name] = [case.turn(options.seconds)]
        print(f"{name}: {measured[name]}", file=sys.stderr, flush=True)
        case.stop()
    results = summary(measured)
    machine = {"cores": os.cpu_count(), "system": platform.platform()}
    written = {"machine": machine, "results": results, "rounds": measured}
    options.out.write_text(json.dumps(written, indent=2) + "\n")
    print(table(results, errors))


if __name__ == "__main__":
    main()
