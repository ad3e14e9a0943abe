"""Which base algorithm to take: returns of each, alone, beside SBX's, and under a population.

    python benchmarks/returns.py [--steps 60000] [--seeds 3] [--out results/returns]

For every environment, algorithm and seed three runs, each in a process and on a core of its own:

    sbx           SBX's implementation: same sizes, rates, batches, random steps
    single        one learner here
    population    scheme p3s, four learners, the default preset: as many environment steps in all

Learning starts after 5,000 environment steps. One learner acts at random until then; a population
of four until step 8,000, because the preset rounds each learner's 1,250 up to 2,000.

At the end the policy plays 10 noiseless episodes; of a population, the one that the chief would
pick. A finished run is a line of OUT.jsonl and is not run again, so the command may be stopped at
any time and given again. OUT.md has the table: means over seeds with the lowest and the highest
seed, and the exact p-value of four learners against one. Three seeds against three cannot decide
anything: 0.10 is the smallest p-value they can have. How fast each is: `benchmarks/algorithms.py`.
Needs SBX: `make bench` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from case_runs import Row, read, returns_text, run_missing, seed_means
from p3s.report.statistics import permutation_p
from sbx_learners import NAMES, POLICY_DELAY, make_sbx

ENVS = ("HalfCheetah-v5", "Hopper-v5")
KINDS = ("sbx", "single", "population")
RANDOM_STEPS = 5000
"""Environment steps before learning; see above for how many are random."""
EPISODES = 10
SIZES = (128, 128)
BATCH_SIZE = 128
"""Of all of them, so that the whole fits into an evening on two cores."""
LEARNING_RATE = {"td3": 1e-3, "sac": 3e-4, "tqc": 3e-4, "crossq": 1e-3}
NUM_DROPPED = {"HalfCheetah-v5": 0, "Hopper-v5": 5}
"""TQC's authors' values; 2 elsewhere."""


def train_p3s(env: str, scheme: str, algorithm: str, seed: int, steps: int) -> Row:
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


def train_sbx(env: str, algorithm: str, seed: int, steps: int) -> Row:
    """A training with SBX; its returns and times."""
    import gymnasium

    model = make_sbx(
        env, algorithm, seed, SIZES, BATCH_SIZE, LEARNING_RATE[algorithm],
        min(RANDOM_STEPS, steps // 2), NUM_DROPPED.get(env, 2),
    )  # fmt: skip
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


def run(case: Row) -> Row:
    """One training, in this process."""
    env, kind, algorithm, seed, steps = (case[name] for name in CASE)
    if kind == "sbx":
        return {**case, **train_sbx(env, algorithm, seed, steps)}
    scheme = "p3s" if kind == "population" else "single"
    return {**case, **train_p3s(env, scheme, algorithm, seed, steps)}


CASE = ("env", "kind", "algorithm", "seed", "steps")


def table(rows: list[Row], steps: int) -> str:
    """Returns of all runs of this length, in Markdown."""
    rows = [row for row in rows if row["steps"] == steps]
    lines = [
        f"Return after {steps:,} environment steps: mean over seeds (lowest to highest seed); how "
        "many seeds, where it is not three. p: exact Mann-Whitney test of four learners against "
        "one, two-sided; with three seeds against three it is at least 0.10, so it decides "
        "nothing.",
        "",
        "| | SBX, one learner | p3s, one learner | p3s, four learners | p, four against one |",
        "|---|---|---|---|---|",
    ]
    for env, algorithm in sorted({(row["env"], row["algorithm"]) for row in rows}):
        own = [row for row in rows if (row["env"], row["algorithm"]) == (env, algorithm)]
        kinds = {kind: [row for row in own if row["kind"] == kind] for kind in KINDS}
        cells = [cell(rows) for rows in kinds.values()]
        cells.append(p_cell(kinds["population"], kinds["single"]))
        lines.append(f"| {algorithm}, {env} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(rows: list[Row]) -> str:
    """The returns of one kind."""
    count = f"; {len(rows)} seed{'s' * (len(rows) > 1)}" if len(rows) not in (0, 3) else ""
    return returns_text(rows) + count


def p_cell(ours: list[Row], theirs: list[Row]) -> str:
    """The exact p-value of two kinds."""
    if not (ours and theirs):
        return ""
    rng = np.random.default_rng(0)
    return f"{permutation_p([seed_means(ours)], [seed_means(theirs)], rng):.2f}"


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--algorithms", nargs="+", default=tuple(NAMES), choices=NAMES)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--lanes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("results/returns"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run(json.loads(options.one))))
        return
    kinds = [kind for kind in options.kinds if kind != "sbx" or find_spec("sbx")]
    if len(kinds) < len(options.kinds):
        print("SBX is not installed: its runs are left out")
    cases: list[dict[str, Any]] = [
        dict(zip(CASE, (env, kind, algorithm, seed, options.steps), strict=True))
        for seed in range(options.seeds)
        for env in options.envs
        for algorithm in options.algorithms
        for kind in kinds
    ]
    rows = options.out.with_suffix(".jsonl")
    run_missing(__file__, cases, rows, options.lanes)
    text = table(read(rows), options.steps)
    options.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
