"""What `p3s train ENV` reaches where nothing is said, and what one learner reaches with the same.

    python benchmarks/environment_presets.py [--seeds 100 101 102] [--out results/environments]

Trains on every environment whose preset (`p3s presets`) has at most `--most-steps` steps, with
scheme p3s and with scheme single, each run in a process and on a core of its own. At the end the
policy plays 20 noiseless episodes; of a population, the one that the chief would pick. A finished
run is a line of OUT.jsonl and is not run again; OUT.md has the table.

Values were chosen on seeds 0 and 1; others are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import gymnasium

from case_runs import Row, read, returns_text, run_missing
from p3s.cli.presets import known_ids, solved_at
from p3s.config.environments import ENVIRONMENTS

EPISODES = 20
SCHEMES = ("p3s", "single")


def run(case: Row) -> Row:
    """One training with the environment's preset, in this process."""
    from p3s import Population, evaluate

    preset = ENVIRONMENTS[case["family"]]
    population = Population(
        case["env"], case["scheme"], seed=case["seed"], evaluation_period=0, **case["fields"]
    )
    started = time.perf_counter()
    population.learn(case["fields"].get("steps", preset.steps), progress_bar=False)
    seconds = time.perf_counter() - started
    returns = evaluate(population, episodes=EPISODES, seed=case["seed"])
    return {**case, "returns": returns.tolist(), "seconds": seconds}


def table(rows: list[Row]) -> str:
    """Returns of every environment, in Markdown."""
    lines = [
        "Mean return over seeds (lowest to highest seed).", "",
        "| | steps | p3s | single | solved at |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for family, preset in ENVIRONMENTS.items():
        own = [row for row in rows if row["family"] == family]
        if own:
            cells = [returns_text([row for row in own if row["scheme"] == s]) for s in SCHEMES]
            name = own[0]["env"]
            lines.append(f"| {name} | {preset.steps:,} | {' | '.join(cells)} | {solved_at(name)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--most-steps", type=int, default=100_000)
    parser.add_argument("--families", nargs="+", help="only these: CartPole Pendulum ...")
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    parser.add_argument("--fields", type=json.loads, default={}, help="JSON, to try other values")
    parser.add_argument("--lanes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("results/environments"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run(json.loads(options.one))))
        return
    ids = known_ids()
    cheap = [name for name, own in ENVIRONMENTS.items() if own.steps <= options.most_steps]
    cases = [
        {"family": family, "env": ids[family], "scheme": scheme, "seed": seed,
         "fields": options.fields}
        for seed in options.seeds
        for family in options.families or cheap
        for scheme in options.schemes
        if ids[family] in gymnasium.registry
    ]  # fmt: skip
    rows = options.out.with_suffix(".jsonl")
    run_missing(__file__, cases, rows, options.lanes)
    text = table([row for row in read(rows) if row["seed"] in options.seeds])
    options.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
