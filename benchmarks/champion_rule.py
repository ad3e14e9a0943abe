"""How well does the chief know the best learner? Compare rules on the records of finished runs.

    python benchmarks/champion_rule.py STUDY [STUDY ...]

At every evaluation of a run, a rule picks a learner by the training returns so far:

    last E_r         mean of the last E_r, of those not older than an age in own steps
    memory tau       mean of all, each weighing exp(-age / tau)

What it is worth is where the pick lies between the population's mean return (0) and its highest (1)
at that evaluation; a pick at random is worth 0 on average. Runs of one learner are skipped. No run
is made: other rules would have guided the population elsewhere, so this compares rules on the
histories that happened.

The last two lines are of picks that played fresh episodes: the champion, which is chosen by the
evaluation's own episodes, and the chief's pick. The highest mean of an evaluation is biased
upwards, so a worth of 1 is out of reach there; the two compare with each other.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np

from p3s.report.results import read_results
from p3s.runs.records import read_rows

RECENT = (1, 2, 3, 5, 10)
AGES = (np.inf, 4000, 2000, 1000)
MEMORIES = (500, 1000, 2000, 4000)
FRESH = {"champion, fresh episodes": "champion_return", "chief's pick, fresh": "chief_return"}

Worths = dict[str, list[float]]
Past = list[list[tuple[float, float]]]
"""For each learner (age, return) of its training episodes, oldest first."""


def judgments(episodes: Past) -> dict[str, list[float]]:
    """What every rule thinks of each learner; minus infinity where it knows nothing."""
    found = {}
    for recent, oldest in product(RECENT, AGES):
        kept = [[total for age, total in own[-recent:] if age <= oldest] for own in episodes]
        means = [float(np.mean(own)) if own else -np.inf for own in kept]
        found[f"last {recent:2}, age {oldest:6}"] = means
    for memory in MEMORIES:
        means = []
        for own in episodes:
            ages, totals = np.array(own or [(0.0, -np.inf)]).T
            means.append(float(np.average(totals, weights=np.exp((ages.min() - ages) / memory))))
        found[f"memory {memory:4}"] = means
    return found


def worth(path: Path, evaluations: list[dict]) -> Worths:
    """The worth of every rule at every evaluation of a run."""
    metrics, found = read_rows(path / "metrics.jsonl"), defaultdict(list)
    for row in evaluations:
        returns = np.mean(row["learner_returns"], axis=1)
        count, above = len(returns), returns.max() - returns.mean()
        if above <= 0:
            continue
        episodes: Past = [[] for _ in range(count)]
        for logged in metrics:
            if logged["step"] <= row["step"]:
                for learner, total, _ in logged["episodes"]:
                    episodes[learner].append(((row["step"] - logged["step"]) / count, total))
        for rule, means in judgments(episodes).items():
            if np.isfinite(means).any():
                pick = returns[int(np.argmax(means))]
                found[rule].append((pick - returns.mean()) / above)
        for rule, column in FRESH.items():
            if row.get(column) is not None:
                found[rule].append((row[column] - returns.mean()) / above)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path)
    runs = [run for run in read_results(parser.parse_args().studies).runs if run.num_learners > 1]
    by_env: dict[str, Worths] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for rule, values in worth(run.path, run.evaluations).items():
            by_env[run.env][rule] += values
    print(f"{len(runs)} runs")
    for rule in next(iter(by_env.values())):
        cells = [np.mean(rules[rule]) for rules in by_env.values()]
        shown = "  ".join(f"{name} {cell:.2f}" for name, cell in zip(by_env, cells, strict=True))
        print(f"{rule:26}  mean {np.mean(cells):.2f}  |  {shown}")


if __name__ == "__main__":
    main()
