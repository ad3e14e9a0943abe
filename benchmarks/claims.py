"""The paper's claims, tested on the results of the study `laptop`.

    p3s study run laptop && p3s study export laptop -o results/laptop.parquet
    python benchmarks/claims.py cost results/laptop-cost.json        # on a quiet machine
    python benchmarks/claims.py test results/laptop.parquet results/laptop-cost.json

Declared before a run:

    PRIMARY      P3S ends above single TD3 on the sparse tasks at equal environment steps, by the
                 mean over tasks of P(improvement) of the champion's return
    secondary    every other row, with Holm's correction for their number
    measure      the champion's return on fresh episodes at the last evaluation, for every method
    p            two-sided, of the exact permutation test: labels of methods are permuted within
                 tasks (p3s.report.statistics.permutation_p)
    confirmed    if p < 0.05 and P(improvement) is above 0.5; refuted if it is below; otherwise
                 undecided. A verdict stands if it stays whichever task is left out
    equal steps  both methods at the environment's last step
    equal time   the cheaper method at the last step, the other where it has used as much time, by
                 the seconds per step in the cost file; linear between evaluations. Steps before
                 the first update cost nothing. Before there is a champion, the policy that would
                 be saved counts, learner 0's
    the gain is largest with sparse rewards
                 P(improvement) over TD3 of each sparse task against that of each dense task: tasks
                 are the unit, and their labels are permuted
    the lottery  the share of a method's runs below half of the task's median over the runs of all
                 methods, and the 10 % quantile

All of this was fixed before the first run with the present tasks and seeds (120 to 124). Without a
cost file nothing is said about equal time. A table may be of a study that is still running: tasks
without all runs of the primary pair, and methods without all runs on the others, are left out.

Returns are normalized on the report's scale (p3s.report.scales): 0 is the better of an idle and a
random policy, 1 the best method's mean score. Tasks on which nothing was learned are left out.
Intervals resample seeds within tasks.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console

from p3s.report import statistics
from p3s.report.aggregates import lower_tails
from p3s.report.export import load_results, results_of
from p3s.report.formatting import p_text, stands_text
from p3s.report.results import Results
from p3s.report.summary import summarize
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.estimate import pace_of

STUDY = "laptop"
PRIMARY = ("P3S > TD3", "sparse", False)
"""Claim, tasks, and whether at equal time."""
CLAIMS = (
    ("P3S", "TD3"), ("P3S", "DRL"), ("P3S", "Re"), ("P3S", "ESO"), ("Re", "TD3"), ("ESO", "TD3"),
)  # fmt: skip
GROUPS = ("all", "dense", "sparse")
SPARSE_GAIN = "the gain over TD3 is largest with sparse rewards"
VERDICTS = {"above": "confirmed", "below": "refuted", "undecided": "undecided"}
BEST_OF = 4


def measure_cost() -> dict[str, dict[str, float]]:
    """Seconds of an environment step with its share of learning, by method and environment."""
    console, found = Console(), {}
    for cell in make_cells(find_study(STUDY).with_budget(None, 1)):
        pace = pace_of(cell.config)
        if pace is None:
            raise SystemExit(f"{cell.method.label} on {cell.env.label} takes too long to time")
        found.setdefault(cell.method.label, {})[cell.env.label] = pace.step
        console.print(f"{cell.method.label} on {cell.env.label}: {1000 * pace.step:.2f} ms a step")
    return found


def whole(results: Results) -> tuple[Results, list[str]]:
    """Tasks with all seeds of the primary pair, and methods with all of them there; the rest."""
    counts = {
        (method, env): len(results.select(method, env))
        for method in results.methods
        for env in results.envs
    }
    every = max(counts.values())
    pair = PRIMARY[0].split(" > ")
    envs = [env for env in results.envs if all(counts[one, env] == every for one in pair)]
    methods = [one for one in results.methods if all(counts[one, env] == every for env in envs)]
    runs = [run for run in results.runs if run.env in envs and run.method in methods]
    others = [*(set(results.envs) - set(envs)), *(set(results.methods) - set(methods))]
    return dataclasses.replace(results, runs=runs), sorted(others)


class Returns:
    """Champion's returns of all runs at any step, on the report's scale."""

    def __init__(self, table) -> None:
        results, self.not_used = whole(results_of(table))
        summary = summarize(results, np.random.default_rng(0))
        self.scales, self.envs = summary.scales, summary.overall.envs
        self.methods, self.notes = results.methods, summary.notes
        self.last = {env: summary.scales[env].step for env in results.envs}
        self.curves: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
        for run in results.runs:
            rows = run.evaluations
            steps = np.array([row["step"] for row in rows], float)
            known = [row["champion_return"] for row in rows]
            values = [
                row["learner_returns"][0][0] if value is None else value
                for row, value in zip(rows, known, strict=True)
            ]
            curve = steps, np.array(values, float)
            self.curves.setdefault((run.method, run.env), []).append(curve)

    def raw(self, method: str, env: str, step: float) -> np.ndarray:
        """One return per seed, at a step."""
        return np.array([np.interp(step, *curve) for curve in self.curves[method, env]])

    def at(self, method: str, env: str, step: float) -> np.ndarray:
        """One normalized return per seed, at a step."""
        return self.scales[env].normalize(self.raw(method, env, step))

    def last_of(self, method: str, envs: list[str]) -> list[np.ndarray]:
        """A method's returns at the last step of each environment."""
        return [self.at(method, env, self.last[env]) for env in envs]


@dataclass(frozen=True)
class Clock:
    """How far methods get in equal computing time."""

    cost: dict[str, dict[str, float]]

    @cached_property
    def first_update(self) -> dict[str, int]:
        """Total steps of each environment before anything is learned, the same for all methods."""
        return {
            cell.env.label: cell.config.scheme.first_update
            for cell in make_cells(find_study(STUDY).with_budget(None, 1))
            if cell.method.scheme == "single"
        }

    def steps(self, ours: str, theirs: str, env: str, last: float) -> tuple[float, float]:
        """The step of each of two methods after the time of the cheaper one."""
        first = self.first_update[env]
        mine, other = self.cost[ours][env], self.cost[theirs][env]
        learning = (last - first) * min(mine, other)
        return first + learning / mine, first + learning / other


@dataclass(frozen=True)
class Row:
    """A claim on some tasks, at equal steps or equal time."""

    claim: str
    tasks: str
    time: bool
    chance: float
    p_value: float
    """Corrected, but for the primary hypothesis."""

    @property
    def primary(self) -> bool:
        return (self.claim, self.tasks, self.time) == PRIMARY

    @property
    def verdict(self) -> str:
        return VERDICTS[statistics.verdict(self.chance, self.p_value)]


def pairs(returns: Returns, clock: Clock, claim: tuple[str, str], envs: list[str], time: bool):
    """Strata of two methods at equal steps or at equal computing time."""
    strata = ([], [])
    for env in envs:
        steps = (returns.last[env],) * 2
        if time:
            steps = clock.steps(*claim, env, returns.last[env])
        for own, method, step in zip(strata, claim, steps, strict=True):
            own.append(returns.at(method, env, step))
    return strata


def in_group(envs: list[str], group: str) -> list[str]:
    """The tasks of a group."""
    groups = {env.label: env.group for env in find_study(STUDY).environments}
    return [env for env in envs if group in ("all", groups[env])]


def gains(returns: Returns, clock: Clock, envs: list[str], time: bool) -> np.ndarray:
    """P(improvement) of P3S over TD3 on each task."""
    mine, other = pairs(returns, clock, ("P3S", "TD3"), envs, time)
    chances = [
        statistics.probability_of_improvement([one], [two])
        for one, two in zip(mine, other, strict=True)
    ]
    return np.array(chances, float)


def judge(returns: Returns, clock: Clock, envs: list[str], rng: np.random.Generator) -> list[Row]:
    """Every claim on these tasks, corrected for their number; groups without tasks have none."""
    found = []
    for time in (False, True) if clock.cost else (False,):
        for ours, theirs in CLAIMS:
            if not {ours, theirs} <= set(returns.methods):
                continue
            for group in GROUPS:
                if own := in_group(envs, group):
                    strata = pairs(returns, clock, (ours, theirs), own, time)
                    chance = float(statistics.probability_of_improvement(*strata))
                    p_value = statistics.permutation_p(*strata, rng)
                    found.append(Row(f"{ours} > {theirs}", group, time, chance, p_value))
        groups = [in_group(envs, group) for group in ("sparse", "dense")]
        if all(groups):
            sparse, dense = ([gains(returns, clock, own, time)] for own in groups)
            chance = float(statistics.probability_of_improvement(sparse, dense))
            p_value = statistics.permutation_p(sparse, dense, rng)
            found.append(Row(SPARSE_GAIN, "sparse over dense", time, chance, p_value))
    return correct(found)


def correct(rows: list[Row]) -> list[Row]:
    """The primary hypothesis keeps its p-value; the others get Holm's."""
    others = iter(statistics.holm([row.p_value for row in rows if not row.primary]))
    return [
        row if row.primary else Row(row.claim, row.tasks, row.time, row.chance, next(others))
        for row in rows
    ]


def same(rows: list[Row], row: Row) -> Row | None:
    """The row of the same claim; None if a group has no tasks any more."""
    key = (row.claim, row.tasks, row.time)
    return next((own for own in rows if (own.claim, own.tasks, own.time) == key), None)


def claim_line(row: Row, size: str, others: list[list[Row]]) -> str:
    """A claim as a line of a table; `others` are all claims with one task left out."""
    left = [found for rows in others if (found := same(rows, row)) is not None]
    chances = [own.chance for own in left]
    stands = all(own.verdict == row.verdict for own in left) if left else None
    span = f"{min(chances):.2f} to {max(chances):.2f}" if left else "–"
    name = f"**{row.claim}** (primary)" if row.primary else row.claim
    return (
        f"| {name} | {row.tasks} | {row.chance:.2f} | {size} | {p_text(row.p_value)} | "
        f"{row.verdict} | {span} | {stands_text(stands)} |"
    )


def difference(ours: list, theirs: list, rng: np.random.Generator, mean=statistics.iqm):
    """Difference of the IQMs, or of another mean, and its interval if the seeds carry one."""
    count, strata = len(ours), [*ours, *theirs]

    def statistic(drawn: list) -> np.ndarray:
        return mean(drawn[:count]) - mean(drawn[count:])

    interval = statistics.UNKNOWN
    if not statistics.too_few(strata, count):
        interval = statistics.percentile_interval(statistic, strata, rng)
    return float(statistic(strata)), interval


def effect(returns: Returns, clock: Clock, row: Row, rng: np.random.Generator) -> str:
    """How large a difference is, beside how sure it is."""
    if row.claim == SPARSE_GAIN:
        return "–"
    ours, theirs = row.claim.split(" > ")
    envs = in_group(returns.envs, row.tasks)
    gain, (low, high) = difference(*pairs(returns, clock, (ours, theirs), envs, row.time), rng)
    return f"{gain:+.2f}" + ("" if np.isnan(low) else f" ({low:+.2f} to {high:+.2f})")


def print_left_out(returns: Returns, rng: np.random.Generator) -> None:
    """The primary hypothesis with the tasks that have no range: P(improvement) needs no scale."""
    envs = in_group(list(returns.scales), "sparse")
    strata = [
        [returns.raw(method, env, returns.last[env]) for env in envs] for method in ("P3S", "TD3")
    ]
    chance = float(statistics.probability_of_improvement(*strata))
    p_value = p_text(statistics.permutation_p(*strata, rng))
    print(
        f"\nThe primary hypothesis over all {len(envs)} sparse tasks, those without range "
        f"included: P(improvement) {chance:.2f}, p {p_value}. It is not what decides."
    )


def against_best_of(returns: Returns, envs: list[str], share: float) -> float:
    """P3S's mean less the expected best of four single runs with a share of the steps each.

    The best of four is the one with the highest return in the end, which nobody knows beforehand; a
    champion is picked without it. No interval: resampled seeds repeat, and the best of four of
    them is too low.
    """
    ours = [own.mean() for own in returns.last_of("P3S", envs)]
    theirs = [
        statistics.expected_maximum(returns.at("TD3", env, share * returns.last[env]), BEST_OF)
        for env in envs
    ]
    return float(np.mean(ours) - np.mean(theirs))


def print_levels(returns: Returns, rng: np.random.Generator) -> None:
    """IQM of every method, with its interval and its range with one task left out."""
    print("| IQM of normalized champion's return | " + " | ".join(GROUPS) + " |")
    print("|---|---|---|---|")
    for method in returns.methods:
        cells = []
        for group in GROUPS:
            strata = returns.last_of(method, in_group(returns.envs, group))
            if not strata:
                cells.append("–")
                continue
            low, high = statistics.percentile_interval(statistics.iqm, strata, rng)
            least, most = statistics.leave_one_out(statistics.iqm, strata)
            cells.append(
                f"{float(statistics.iqm(strata)):.2f} ({low:.2f} to {high:.2f}; one left out "
                f"{least:.2f} to {most:.2f})"
            )
        print(f"| {method} | " + " | ".join(cells) + " |")


def print_claims(returns: Returns, clock: Clock, rng: np.random.Generator) -> None:
    """Every claim, at equal steps and at equal time."""
    rows = judge(returns, clock, returns.envs, rng)
    others = [
        judge(returns, clock, [env for env in returns.envs if env != left], rng)
        for left in returns.envs
    ]
    for time in (False, True) if clock.cost else (False,):
        print(f"\nat equal {'computing time' if time else 'environment steps'}\n")
        print(
            "| claim | tasks | P(improvement) | difference of IQMs | p | verdict | "
            "P, one left out | verdict stands |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for row in rows:
            if row.time == time:
                print(claim_line(row, effect(returns, clock, row, rng), others))


def print_lottery(returns: Returns) -> None:
    """How bad each method's unlucky seeds are."""
    print("\nThe seed lottery\n")
    print("| | tasks | 10 % quantile | runs below half of the task's median |")
    print("|---|---|---|---|")
    for group in GROUPS:
        envs = in_group(returns.envs, group)
        ends = {method: returns.last_of(method, envs) for method in returns.methods if envs}
        for method, tail in lower_tails(ends).items():
            print(f"| {method} | {group} | {tail.quantile:.2f} | {tail.share:.0%} |")


def print_best_of(returns: Returns) -> None:
    """P3S beside the best of four single runs."""
    print("\nP3S against the expected best of four runs of TD3 (difference of normalized means)\n")
    print("| each run has | all | dense | sparse |")
    print("|---|---|---|---|")
    for share, name in ((1.0, "all steps (4 × the budget)"), (0.25, "a quarter of the steps")):
        chosen = [in_group(returns.envs, group) for group in GROUPS]
        cells = [
            f"{against_best_of(returns, envs, share):+.2f}" if envs else "–" for envs in chosen
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def test(table, cost: dict[str, dict[str, float]]) -> None:
    rng, returns = np.random.default_rng(0), Returns(table)
    seeds = {len(curves) for curves in returns.curves.values()}
    print(f"{len(returns.envs)} tasks, seeds per method and task: {sorted(seeds)}")
    if returns.not_used:
        print(f"not complete, so left out: {', '.join(returns.not_used)}")
    print("\n".join(["", *returns.notes, ""]))
    print_levels(returns, rng)
    print_claims(returns, Clock(cost), rng)
    print_left_out(returns, rng)
    print_lottery(returns)
    print_best_of(returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("cost", "test"))
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    if options.command == "cost":
        options.files[0].write_text(json.dumps(measure_cost(), indent=1) + "\n")
    else:
        results, *cost = options.files
        test(load_results(results), json.loads(cost[0].read_text()) if cost else {})


if __name__ == "__main__":
    main()
