"""The paper's claims, tested on the results of the study `laptop`.

    p3s study run laptop && p3s study export laptop -o results/laptop.parquet
    python benchmarks/claims.py cost results/laptop-cost.json        # on a quiet machine
    python benchmarks/claims.py test results/laptop.parquet results/laptop-cost.json

Decided before the study ran:

    measure      the champion's return on fresh episodes at the last evaluation, for every method
    confirmed    if the 95 % interval of the probability of improvement lies above 0.5
    refuted      if it lies below 0.5; otherwise undecided
    equal steps  both methods at the environment's last step
    equal time   the cheaper method at the last step, the other where it has used as much time, by
                 the seconds per step in the cost file; linear between evaluations
                 (changed after a review, with the results at hand: steps before the first update
                 cost nothing, and before there is a champion the policy that would be saved counts,
                 learner 0's; before, random steps cost as much as others, and no champion counted
                 as the lowest return)
    the gain is largest with sparse rewards
                 if the interval of (gain where sparse) - (gain where dense) lies above 0; a gain is
                 the difference of the IQMs of normalized returns

Returns are normalized in each environment: 0 is the lowest return at the end of any run, 1 the
highest mean of a method. Intervals resample seeds within environments (p3s.report.statistics).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console

from p3s.report import statistics
from p3s.report.export import load_results
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.estimate import ENVIRONMENT_SECONDS, environment_cost, training_cost

STUDY = "laptop"
CLAIMS = (
    ("P3S", "TD3"), ("P3S", "DRL"), ("P3S", "Re"), ("P3S", "ESO"), ("Re", "TD3"), ("ESO", "TD3"),
)  # fmt: skip
GROUPS = ("all", "dense", "sparse")
BEST_OF = 4
FIRST_UPDATE = {
    cell.env.label: cell.config.scheme.first_update
    for cell in make_cells(find_study(STUDY).with_budget(None, 1))
    if cell.method.scheme == "single"
}
"""Total steps of each environment before anything is learned, the same for all methods."""


def measure_cost() -> dict[str, dict[str, float]]:
    """Seconds of an environment step with its share of learning, by method and environment."""
    console, found = Console(), {}
    for cell in make_cells(find_study(STUDY).with_budget(None, 1)):
        env = environment_cost(cell.config.env, ENVIRONMENT_SECONDS)
        step = training_cost(cell.config, env).step_seconds + env.step_seconds
        found.setdefault(cell.method.label, {})[cell.env.label] = step
        console.print(f"{cell.method.label} on {cell.env.label}: {1000 * step:.2f} ms a step")
    return found


class Returns:
    """Champion's returns of all runs, normalized, at any step."""

    def __init__(self, table) -> None:
        self.curves: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
        for (method, env, _), rows in table.filter(table["learner"] == 0).group_by(
            ["method", "env", "seed"], maintain_order=True
        ):
            rows = rows.sort("step")
            champion = rows["champion_return"].fill_null(rows["learner_return"])
            curve = rows["step"].to_numpy(), champion.to_numpy()
            self.curves.setdefault((method, env), []).append(curve)
        self.methods = list(dict.fromkeys(method for method, _ in self.curves))
        self.envs = list(dict.fromkeys(env for _, env in self.curves))
        self.last = {env: max(curve[0][-1] for curve in self.of_env(env)) for env in self.envs}
        self.low = {env: min(curve[1][-1] for curve in self.of_env(env)) for env in self.envs}
        self.high = {
            env: max(np.mean([own[1][-1] for own in self.curves[m, env]]) for m in self.methods)
            for env in self.envs
        }

    def of_env(self, env: str) -> list[tuple[np.ndarray, np.ndarray]]:
        return [curve for (_, own), curves in self.curves.items() if own == env for curve in curves]

    def at(self, method: str, env: str, step: float) -> np.ndarray:
        """One value per seed, at a step."""
        values = [np.interp(step, *curve) for curve in self.curves[method, env]]
        return (np.array(values) - self.low[env]) / (self.high[env] - self.low[env])


def steps_at_equal_time(returns: Returns, cost: dict, ours: str, theirs: str, env: str):
    """How far each of two methods gets in the time of the cheaper one."""
    seconds = {method: cost[method][env] for method in (ours, theirs)}
    first = FIRST_UPDATE[env]
    learning = (returns.last[env] - first) * min(seconds.values())
    return tuple(first + learning / seconds[method] for method in (ours, theirs))


def verdict(interval: statistics.Interval, neutral: float) -> str:
    if interval.low > neutral:
        return "confirmed"
    return "refuted" if interval.high < neutral else "undecided"


def pairs(returns: Returns, cost: dict, ours: str, theirs: str, envs: list[str], time: bool):
    """Strata of two methods at equal steps or at equal computing time."""
    strata = ([], [])
    for env in envs:
        steps = (returns.last[env],) * 2
        if time:
            steps = steps_at_equal_time(returns, cost, ours, theirs, env)
        for own, method, step in zip(strata, (ours, theirs), steps, strict=True):
            own.append(returns.at(method, env, step))
    return strata


def difference(ours: list, theirs: list, rng: np.random.Generator, mean=statistics.iqm):
    """Difference of the IQMs, or of another mean, and its interval."""
    count = len(ours)

    def statistic(drawn: list) -> np.ndarray:
        return mean(drawn[:count]) - mean(drawn[count:])

    strata = [*ours, *theirs]
    return float(statistic(strata)), statistics.percentile_interval(statistic, strata, rng)


def against_best_of(returns: Returns, envs: list[str], share: float) -> float:
    """P3S's mean less the expected best of four single runs with a share of the steps each.

    The best of four is the one with the highest return in the end, which nobody knows beforehand; a
    champion is picked by training returns. No interval: resampled seeds repeat, and the best of
    four of them is too low.
    """
    ours = [returns.at("P3S", env, returns.last[env]).mean() for env in envs]
    theirs = [
        statistics.expected_maximum(returns.at("TD3", env, share * returns.last[env]), BEST_OF)
        for env in envs
    ]
    return float(np.mean(ours) - np.mean(theirs))


def test(table, cost: dict) -> None:
    rng, returns = np.random.default_rng(0), Returns(table)
    groups = {env.label: env.group for env in find_study(STUDY).environments}
    chosen = {
        group: [env for env in returns.envs if group in ("all", groups[env])] for group in GROUPS
    }
    seeds = {len(curves) for curves in returns.curves.values()}
    print(f"{len(returns.envs)} environments, seeds per method and environment: {sorted(seeds)}\n")
    print("| IQM of normalized champion's return | " + " | ".join(GROUPS) + " |")
    print("|---|---|---|---|")
    for method in returns.methods:
        cells = []
        for envs in chosen.values():
            strata = [returns.at(method, env, returns.last[env]) for env in envs]
            low, high = statistics.percentile_interval(statistics.iqm, strata, rng)
            cells.append(f"{float(statistics.iqm(strata)):.2f} ({low:.2f} to {high:.2f})")
        print(f"| {method} | " + " | ".join(cells) + " |")
    for time in (False, True):
        print(f"\nat equal {'computing time' if time else 'environment steps'}\n")
        print("| claim | tasks | P(improvement) | difference of IQMs | verdict |")
        print("|---|---|---|---|---|")
        for ours, theirs in CLAIMS:
            for group, envs in chosen.items():
                mine, other = pairs(returns, cost, ours, theirs, envs, time)
                chance = float(statistics.probability_of_improvement(mine, other))
                interval = statistics.improvement_interval(mine, other, rng)
                gain, (low, high) = difference(mine, other, rng)
                print(
                    f"| {ours} > {theirs} | {group} | {chance:.2f} ({interval.low:.2f} to "
                    f"{interval.high:.2f}) | {gain:+.2f} ({low:+.2f} to {high:+.2f}) | "
                    f"{verdict(interval, 0.5)} |"
                )
        sparse, dense = (
            pairs(returns, cost, "P3S", "TD3", chosen[group], time) for group in ("sparse", "dense")
        )
        parts = [*sparse[0], *sparse[1], *dense[0], *dense[1]]
        ends = np.cumsum([len(sparse[0]), len(sparse[1]), len(dense[0])])

        def gain_of_gains(drawn: list, ends: np.ndarray = ends) -> np.ndarray:
            a, b, c, d = (
                statistics.iqm(drawn[start:end])
                for start, end in zip([0, *ends], [*ends, len(drawn)], strict=True)
            )
            return (a - b) - (c - d)

        interval = statistics.percentile_interval(gain_of_gains, parts, rng)
        print(
            f"| the gain over TD3 is largest with sparse rewards | sparse - dense | | "
            f"{float(gain_of_gains(parts)):+.2f} ({interval.low:+.2f} to {interval.high:+.2f}) | "
            f"{verdict(interval, 0.0)} |"
        )
    print("\nP3S against the expected best of four runs of TD3 (difference of normalized means)\n")
    print("| each run has | all | dense | sparse |")
    print("|---|---|---|---|")
    for share, name in ((1.0, "all steps (4 × the budget)"), (0.25, "a quarter of the steps")):
        cells = []
        for envs in chosen.values():
            cells.append(f"{against_best_of(returns, envs, share):+.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("cost", "test"))
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "cost":
        options.files[0].write_text(json.dumps(measure_cost(), indent=1) + "\n")
    else:
        results, cost = options.files
        test(load_results(results), json.loads(cost.read_text()))


if __name__ == "__main__":
    main()
