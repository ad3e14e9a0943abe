"""How well does the chief know the best learner? Compare rules on the records of finished runs.

    python benchmarks/champion_rule.py STUDY [STUDY ...]

At every evaluation of a run, a rule picks a learner by the training returns so far: the mean of the
last E_r, of those not older than an age in own steps. What it is worth is where the pick lies
between the population's mean return (0) and its highest (1) at that evaluation; a pick at random
is worth 0 on average. Runs of one learner are skipped. No run is made: other rules would have
guided the population elsewhere, so this compares rules on the histories that happened.
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


def worth(path: Path, evaluations: list[dict]) -> dict[tuple[int, float], list[float]]:
    """The worth of every rule at every evaluation of a run."""
    metrics, found = read_rows(path / "metrics.jsonl"), defaultdict(list)
    for row in evaluations:
        returns = np.mean(row["learner_returns"], axis=1)
        count, above = len(returns), returns.max() - returns.mean()
        episodes: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        for logged in metrics:
            if logged["step"] <= row["step"]:
                for learner, total, _ in logged["episodes"]:
                    age = (row["step"] - logged["step"]) / count
                    episodes[learner].append((age, total))
        for recent, oldest in product(RECENT, AGES):
            kept = [[v for age, v in own[-recent:] if age <= oldest] for own in episodes]
            if above > 0 and any(kept):
                means = [np.mean(own) if own else -np.inf for own in kept]
                pick = returns[int(np.argmax(means))]
                found[recent, oldest].append((pick - returns.mean()) / above)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path)
    runs = [run for run in read_results(parser.parse_args().studies).runs if run.num_learners > 1]
    by_env: dict[str, dict] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for rule, values in worth(run.path, run.evaluations).items():
            by_env[run.env][rule] += values
    for recent, oldest in product(RECENT, AGES):
        cells = [np.mean(rules[recent, oldest]) for rules in by_env.values()]
        shown = "  ".join(f"{name} {cell:.2f}" for name, cell in zip(by_env, cells, strict=True))
        print(f"E_r {recent:2}  age {oldest:6}  mean {np.mean(cells):.2f}  |  {shown}")


if __name__ == "__main__":
    main()
