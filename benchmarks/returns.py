"""Which base algorithm to take: returns of each, alone, beside SBX's, and under a population.

    python benchmarks/returns.py [--steps 60000] [--seeds 3] [--out results/returns]

For every environment, algorithm and seed three runs, each in a process of its own:

    sbx           SBX's implementation, if it has one: same sizes, rates, batches, random steps
    single        one learner here
    population    scheme p3s, four learners, the default preset: as many environment steps in all

At the end the policy plays 10 noiseless episodes; of a population, the one that the chief would
pick. A finished run is a line of OUT.jsonl and is not run again, so the command may be stopped at
any time and given again. OUT.md has the table: means over seeds with 95 % intervals, and
environment steps per second of the whole training. Needs SBX: `make bench` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ENVS = ("HalfCheetah-v5", "Hopper-v5")
KINDS = ("sbx", "single", "population")
RANDOM_STEPS = 5000
EPISODES = 10
SIZES = (256, 256)
BATCH_SIZE = 256
LEARNING_RATE = {"td3": 1e-3, "sac": 3e-4, "tqc": 3e-4, "crossq": 1e-3}
SBX_NAMES = {"td3": "TD3", "sac": "SAC", "tqc": "TQC", "crossq": "CrossQ"}
POLICY_DELAY = {"td3": 2, "sac": 1, "tqc": 1, "crossq": 3}
NUM_DROPPED = {"HalfCheetah-v5": 0, "Hopper-v5": 5}
"""TQC's authors' values; 2 elsewhere."""


def train_p3s(env: str, scheme: str, algorithm: str, seed: int, steps: int) -> dict[str, Any]:
    """A training here; its returns and times."""
    from p3s import Population, evaluate

    learners = 4 if scheme == "p3s" else 1
    population = Population(
        env, scheme=scheme, algorithm=algorithm, seed=seed, evaluation_period=0,
        initial_steps=min(RANDOM_STEPS, steps // 2) // learners, hidden_sizes=SIZES,
        batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE[algorithm],
        policy_period=POLICY_DELAY[algorithm],
        **({"num_dropped": NUM_DROPPED.get(env, 2)} if algorithm == "tqc" else {}),
    )  # fmt: skip
    started = time.perf_counter()
    population.learn(steps, progress_bar=False)
    seconds = time.perf_counter() - started
    returns = evaluate(population, episodes=EPISODES, seed=seed)
    return {"returns": returns.tolist(), "seconds": seconds}


def make_sbx(env: str, algorithm: str, seed: int, steps: int) -> Any:
    """SBX's algorithm with the same settings."""
    import gymnasium
    import sbx
    from stable_baselines3.common.noise import NormalActionNoise

    policy = {"net_arch": list(SIZES)}
    more: dict[str, Any] = {}
    if algorithm == "tqc":
        more["top_quantiles_to_drop_per_net"] = NUM_DROPPED.get(env, 2)
    if algorithm == "td3":
        shape = gymnasium.make(env).action_space.shape
        assert shape is not None
        more["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, 0.1))
    else:
        more["policy_delay"] = POLICY_DELAY[algorithm]
    return getattr(sbx, SBX_NAMES[algorithm])(
        "MlpPolicy", env, seed=seed, batch_size=BATCH_SIZE, gamma=0.99, policy_kwargs=policy,
        learning_rate=LEARNING_RATE[algorithm], qf_learning_rate=LEARNING_RATE[algorithm],
        learning_starts=min(RANDOM_STEPS, steps // 2), **more,
    )  # fmt: skip


def train_sbx(env: str, algorithm: str, seed: int, steps: int) -> dict[str, Any]:
    """A training with SBX; its returns and times."""
    import gymnasium

    model = make_sbx(env, algorithm, seed, steps)
    started = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - started
    world, returns = gymnasium.make(env), np.zeros(EPISODES)
    for episode in range(EPISODES):
        observation, _ = world.reset(seed=1000 * seed + episode)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = world.step(action)
            returns[episode] += float(reward)
            over = terminated or truncated
    return {"returns": returns.tolist(), "seconds": seconds}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """One training, in this process."""
    env, kind, algorithm, seed, steps = (case[name] for name in CASE)
    if kind == "sbx":
        return {**case, **train_sbx(env, algorithm, seed, steps)}
    scheme = "p3s" if kind == "population" else "single"
    return {**case, **train_p3s(env, scheme, algorithm, seed, steps)}


CASE = ("env", "kind", "algorithm", "seed", "steps")


def read(path: Path) -> list[dict[str, Any]]:
    """The finished runs; a line that a killed process left unfinished is passed over."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: passed over a broken line", file=sys.stderr)
    return rows


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two runs the same."""
    return tuple(row[name] for name in CASE)


def work_off(cases: list[dict[str, Any]], path: Path) -> None:
    """Run what is not finished yet, one process after another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = {key(row) for row in read(path)}
    for case in cases:
        if key(case) in finished:
            continue
        words = [sys.executable, __file__, "--one", json.dumps(case)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"failed: {case}", file=sys.stderr, flush=True)
            continue
        line = done.stdout.splitlines()[-1]
        with path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        row = json.loads(line)
        print(f"{case}: {np.mean(row['returns']):.0f}, {row['seconds']:.0f} s", flush=True)


def cell(rows: list[dict[str, Any]]) -> str:
    """Mean over seeds with its interval, and steps per second."""
    from p3s.report.statistics import mean_interval

    if not rows:
        return ""
    means = np.array([np.mean(row["returns"]) for row in rows])
    speed = np.median([row["steps"] / row["seconds"] for row in rows])
    if len(means) < 2:
        return f"{means[0]:,.0f}; {speed:,.0f}/s"
    low, high = mean_interval([means], np.random.default_rng(0))
    return f"{means.mean():,.0f} ({low:,.0f} to {high:,.0f}); {speed:,.0f}/s"


def table(rows: list[dict[str, Any]], steps: int) -> str:
    """Returns of all runs of this length, in Markdown."""
    rows = [row for row in rows if row["steps"] == steps]
    seeds = len({row["seed"] for row in rows})
    lines = [
        f"Return after {steps:,} environment steps, mean over {seeds} seeds (95 % interval); "
        "environment steps per second.",
        "",
        "| | SBX, one learner | p3s, one learner | p3s, four learners |",
        "|---|---|---|---|",
    ]
    for env, algorithm in sorted({(row["env"], row["algorithm"]) for row in rows}):
        own = [row for row in rows if (row["env"], row["algorithm"]) == (env, algorithm)]
        cells = [cell([row for row in own if row["kind"] == kind]) for kind in KINDS]
        lines.append(f"| {algorithm}, {env} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--algorithms", nargs="+", default=tuple(SBX_NAMES), choices=SBX_NAMES)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--out", type=Path, default=Path("results/returns"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run(json.loads(options.one))))
        return
    kinds = [kind for kind in options.kinds if kind != "sbx" or find_spec("sbx")]
    if len(kinds) < len(options.kinds):
        print("SBX is not installed: its runs are left out", file=sys.stderr)
    cases = [
        dict(zip(CASE, (env, kind, algorithm, seed, options.steps), strict=True))
        for seed in range(options.seeds)
        for env in options.envs
        for algorithm in options.algorithms
        for kind in kinds
    ]
    rows = options.out.with_suffix(".jsonl")
    work_off(cases, rows)
    text = table(read(rows), options.steps)
    options.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
