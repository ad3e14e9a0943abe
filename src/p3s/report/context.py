"""What a reader has to know besides the numbers: settings, origin, and reasons for caution."""

from __future__ import annotations

from collections import Counter
from typing import Any

from p3s.report.results import Results, RunResult, listed, settings

FEW_SEEDS = 5


def differing_settings(results: Results) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Methods, and for every setting that is not the same in all runs its value in each method."""
    methods, per_run = results.methods, [settings(run.config) for run in results.runs]
    names = dict.fromkeys(name for flat in per_run for name in flat)
    rows = []
    for name in names:
        if len({_shown(flat.get(name)) for flat in per_run}) > 1:
            values = [_values(results.select(method), name) for method in methods]
            # Environments are the columns of a study, not a difference between methods.
            if name != "environment" or len(set(values)) > 1:
                rows.append((name, values))
    return methods, rows


def common_settings(results: Results) -> list[tuple[str, str]]:
    """Every setting that is the same in all runs."""
    per_run = [settings(run.config) for run in results.runs]
    return [
        (name, _shown(value))
        for name, value in per_run[0].items()
        if all(name in flat and flat[name] == value for flat in per_run)
    ]


def _values(runs: list[RunResult], name: str) -> str:
    """A setting's values in a method's runs; where they differ by environment, which is which."""
    where: dict[str, list[str]] = {}
    for run in runs:
        where.setdefault(_shown(settings(run.config).get(name)), []).append(run.env)
    if len(where) == 1 or name == "environment":
        return ", ".join(where)
    return "; ".join(
        f"{value} ({listed(list(dict.fromkeys(envs)), most=3)})" for value, envs in where.items()
    )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return " × ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def provenance_rows(results: Results) -> list[tuple[str, str]]:
    """Where the numbers come from: commits, versions, machines, seeds, time."""
    configs = [run.config for run in results.runs]
    rows = [("runs", f"{len(configs)}")]
    rows.append(("commit", _counted([(c.get("commit") or "not known")[:12] for c in configs])))
    packages = dict.fromkeys(name for c in configs for name in c.get("versions", {}))
    versions = [
        f"{name} {_counted([c.get('versions', {}).get(name, '–') for c in configs])}"
        for name in packages
    ]
    rows.append(("versions", ", ".join(versions) or "not known"))
    machines = [c.get("machine", {}) for c in configs]
    described = [f"{m.get('system', 'not known')}, {m.get('cores', '?')} cores" for m in machines]
    rows.append(("machine", _counted(described)))
    seeds = {run.seed for run in results.runs}
    rows.append(("seeds", listed([str(seed) for seed in sorted(seeds)], most=20)))
    spent = sum(run.evaluations[-1]["seconds"] for run in results.runs)
    rows.append(("time, all runs together", duration(spent)))
    return rows


def _counted(values: list[str]) -> str:
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    return ", ".join(f"{value} ({count} runs)" for value, count in counts.most_common())


def duration(seconds: float) -> str:
    """A time in the two units that matter."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.0f} min" if minutes < 120 else f"{hours:,.1f} h"


def cautions(results: Results) -> list[str]:
    """What makes runs less comparable than they look."""
    found = []
    for env in results.envs:
        planned = Counter(run.config["steps"] for run in results.select(env=env))
        if len(planned) > 1:
            steps = ", ".join(
                f"{steps:,} ({count} runs)" for steps, count in sorted(planned.items())
            )
            found.append(f"{env}: runs of different step counts are mixed: {steps}")
    unfinished = [run.name for run in results.runs if not run.complete]
    if unfinished:
        found.append(f"{len(unfinished)} runs are not complete: {listed(unfinished)}")
    for key, name in (("commit", "commits"), ("versions", "versions")):
        if len({str(run.config.get(key)) for run in results.runs}) > 1:
            found.append(f"runs made with different {name} are mixed: see Provenance")
    for option in ("evaluation_period", "evaluation_episodes"):
        values = sorted({run.config.get(option, 0) for run in results.runs})
        if len(values) > 1:
            shown = ", ".join(map(str, values))
            found.append(f"runs differ in {option}: {shown}")
    return found + _seed_cautions(results)


def _seed_cautions(results: Results) -> list[str]:
    found, few = [], []
    for env in results.envs:
        own = {
            method: {run.seed for run in results.select(method, env)} for method in results.methods
        }
        everyone = set().union(*own.values())
        for method, seeds in own.items():
            if not seeds:
                found.append(f"{method} has no run on {env}")
            elif everyone - seeds:
                missing = ", ".join(map(str, sorted(everyone - seeds)))
                found.append(f"{method} on {env} lacks seeds that others have: {missing}")
            if 0 < len(seeds) < FEW_SEEDS:
                few.append(len(seeds))
    if few:
        found.append(
            f"as few as {min(few)} seed{'' if min(few) == 1 else 's'} in some places: with fewer "
            f"than {FEW_SEEDS}, differences between methods are mostly chance"
        )
    return found
