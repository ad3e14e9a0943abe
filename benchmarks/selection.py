"""The table of the studies `selection` and `selection-crossq`: what decides between their methods.

    p3s study run selection && p3s study export selection -o results/selection.parquet
    python benchmarks/selection.py results/selection.parquet

The measure is the mean over learners at the last evaluation, in which no choice among them plays a
part; the champion's return on fresh episodes comes second. A form is decided against another by the
probability of improvement over the tasks, with the exact permutation test, on the seeds that both
have completed. What the outcome means was written into the study's file before it ran.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from p3s.report import statistics
from p3s.report.export import load_results, results_of
from p3s.report.formatting import p_text
from p3s.report.results import Results

MEASURES = {"mean over learners": "mean", "champion": "champion_return"}
PRESENT, SHARING = "P3S", "ESO"
"""What the names of the present form of P3S, and of ESO, begin with; another one learns alone."""

Ends = dict[tuple[str, str], dict[int, dict]]
"""The last evaluation of every complete run, by method and environment, then by seed."""


def last_evaluations(results: Results) -> Ends:
    """Runs that ended before their environment's last step are left out."""
    found: Ends = {}
    last = {env: max(run.evaluations[-1]["step"] for run in results.runs if run.env == env)
            for env in results.envs}  # fmt: skip
    for run in results.runs:
        if run.evaluations and run.evaluations[-1]["step"] == last[run.env]:
            found.setdefault((run.method, run.env), {})[run.seed] = run.evaluations[-1]
    return found


def strata(
    ends: Ends, envs: list[str], ours: str, theirs: str, measure: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns of two methods on the seeds that both have, for each environment."""
    pairs = ([], [])
    for env in envs:
        runs = ends.get((ours, env), {}), ends.get((theirs, env), {})
        seeds = sorted(runs[0].keys() & runs[1].keys())
        if seeds:
            for own, side in zip(pairs, runs, strict=True):
                own.append(np.array([side[seed][measure] for seed in seeds]))
    return pairs


def pairs_of(methods: list[str]) -> list[tuple[str, str]]:
    """Who is compared with whom: P3S, ESO and the single learner, then other forms with P3S."""
    forms = [method for method in methods if f"{PRESENT}," in method]
    known = [method for method in methods if method not in forms]
    present = next(method for method in known if method.startswith(PRESENT))
    shared = next(method for method in known if method.startswith(SHARING))
    alone = [method for method in known if method not in (present, shared)]
    pairs = [(present, shared), *((ours, single) for single in alone for ours in (present, shared))]
    return pairs + [(form, present) for form in forms]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    results = results_of(load_results(parser.parse_args().results))
    ends, rng = last_evaluations(results), np.random.default_rng(0)
    for title, measure in MEASURES.items():
        print(f"\n{title}, one number per seed\n")
        print("| | " + " | ".join(results.envs) + " |\n|" + "---|" * (1 + len(results.envs)))
        for method in results.methods:
            cells = [
                ", ".join(f"{row[measure]:,.0f}" for _, row in sorted(own.items()))
                for own in (ends.get((method, env), {}) for env in results.envs)
            ]
            print(f"| {method} | " + " | ".join(cells) + " |")
    pairs = pairs_of(results.methods)
    print("\n| | tasks | seeds | by mean over learners: P, p | by champion: P, p |")
    print("|---|---|---|---|---|")
    for ours, theirs in pairs:
        groups = [[env] for env in results.envs]
        for envs in [results.envs, *(groups if len(groups) > 1 else [])]:
            cells = []
            for measure in MEASURES.values():
                mine, other = strata(ends, envs, ours, theirs, measure)
                if not mine:
                    break
                chance = float(statistics.probability_of_improvement(mine, other))
                p_value = statistics.permutation_p(mine, other, rng)
                cells.append(f"{chance:.2f}, {p_text(p_value)}")
            if len(cells) == len(MEASURES):
                name = "all" if len(envs) > 1 else envs[0]
                seeds = ", ".join(str(len(own)) for own in mine)
                print(f"| {ours} > {theirs} | {name} | {seeds} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
