"""What a reader needs besides the numbers: settings, provenance and cautions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from p3s.report.formatting import (
    count_text,
    duration_text,
    first_names,
    presets_text,
    score_text,
)
from p3s.report.results import Results, RunResult
from p3s.report.statistics import MIN_SEEDS
from p3s.report.summary import Summary
from p3s.runs.settings import settings

PUBLISHED_PRESET = "authors"
"""The preset with the settings of the code that the paper's scores came from (docs/presets.md)."""
ENOUGH_SEEDS = 5
"""With fewer seeds the page warns: the interval of a mean covers too little (docs/report.md)."""


def differing_settings(results: Results) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The methods, and every setting that differs between runs with its value in each method."""
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
    """Every setting that all runs share, with its value."""
    per_run = [settings(run.config) for run in results.runs]
    return [
        (name, _shown(value))
        for name, value in per_run[0].items()
        if all(name in flat and flat[name] == value for flat in per_run)
    ]


def _values(runs: list[RunResult], name: str) -> str:
    """A setting's values in a method's runs, with the environments of each where they differ."""
    where: dict[str, list[str]] = {}
    for run in runs:
        where.setdefault(_shown(settings(run.config).get(name)), []).append(run.env)
    if len(where) == 1 or name == "environment":
        return ", ".join(where)
    return "; ".join(
        f"{value} ({first_names(list(dict.fromkeys(envs)), most=3)})"
        for value, envs in where.items()
    )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return " × ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def provenance_rows(results: Results) -> list[tuple[str, str]]:
    """Where the numbers come from: commits, versions, machines, seeds and time."""
    configs = [run.config for run in results.runs]
    rows = [("runs", f"{len(configs)}")]
    rows.append(("commit", _counted([(c.get("commit") or "unknown")[:12] for c in configs])))
    packages = dict.fromkeys(name for c in configs for name in (c.get("versions") or {}))
    versions = [
        f"{name} {_counted([str((c.get('versions') or {}).get(name) or '–') for c in configs])}"
        for name in packages
    ]
    rows.append(("versions", ", ".join(versions) or "unknown"))
    machines = [c.get("machine") or {} for c in configs]
    described = [f"{m.get('system', 'unknown')}, {m.get('cores', '?')} cores" for m in machines]
    rows.append(("machine", _counted(described)))
    seeds = {run.seed for run in results.runs}
    rows.append(("seeds", first_names([str(seed) for seed in sorted(seeds)], most=20)))
    spent = sum(run.evaluations[-1]["seconds"] for run in results.runs)
    rows.append(("total time of all runs", duration_text(spent)))
    return rows


def _counted(values: list[str]) -> str:
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    return ", ".join(
        f"{value} ({count_text(count, 'run')})" for value, count in counts.most_common()
    )


def preset_line(results: Results) -> str:
    """The preset of every method."""
    return presets_text((run.method, run.config["preset"]) for run in results.runs)


def published_line(results: Results) -> str:
    """The settings of published scores, and those of the runs."""
    made = f"Published scores were made with the settings of preset {PUBLISHED_PRESET}"
    return f"{made}; these runs have {preset_line(results)}."


def cautions(results: Results) -> list[str]:
    """Whatever makes the runs less comparable than they look, one sentence each."""
    found = []
    # Environments may have budgets of their own (docs/studies.md): compare within each of them.
    for env in results.envs:
        for option in ("steps", "evaluation_period", "evaluation_episodes"):
            counts = Counter(run.config.get(option, 0) for run in results.select(env=env))
            if len(counts) > 1:
                values = ", ".join(
                    f"{value:,} ({count_text(count, 'run')})"
                    for value, count in sorted(counts.items())
                )
                found.append(f"{env}: runs differ in {option}: {values}")
    unfinished = [run.name for run in results.runs if not run.complete]
    if unfinished:
        verb = "is" if len(unfinished) == 1 else "are"
        count = count_text(len(unfinished), "run")
        found.append(f"{count} {verb} not complete: {first_names(unfinished)}")
    for key, name in (("commit", "commits"), ("versions", "package versions")):
        if len({str(run.config.get(key)) for run in results.runs}) > 1:
            found.append(f"runs come from different {name}: see Provenance")
    return found + _seed_cautions(results)


def reference_cautions(summary: Summary) -> list[str]:
    """Where a policy that learns nothing beats methods or published scores."""
    found = []
    for env, scale in summary.scales.items():
        if scale.reference is None:
            continue
        best = scale.reference.best
        earned = scale.reference.means[best]
        cells = [cell for cell in summary.cells.values() if cell.env == env]
        below = [cell.method for cell in cells if cell.score.mean < earned]
        published = [cell.paper for cell in cells if cell.paper is not None]
        beaten = []
        if below:
            beaten.append("every method" if len(below) == len(cells) else first_names(below))
        if published and max(published) < earned:
            beaten.append(f"every published score (the highest is {score_text(max(published))})")
        elif published and min(published) < earned:
            count = sum(score < earned for score in published)
            beaten.append(f"{count} of {len(published)} published scores")
        if beaten:
            who = f"{'an' if best == 'idle' else 'a'} {best} policy earns {score_text(earned)}"
            found.append(f"{env}: {who}, more than {' and '.join(beaten)}")
    return found


def _seed_cautions(results: Results) -> list[str]:
    found, few = [], []
    for env in results.envs:
        own = {
            method: {run.seed for run in results.select(method, env)} for method in results.methods
        }
        everyone = set().union(*own.values())
        for method, seeds in own.items():
            if not seeds:
                found.append(f"{method} has no runs on {env}")
            elif everyone - seeds:
                missing = ", ".join(map(str, sorted(everyone - seeds)))
                found.append(f"{method} on {env} lacks seeds that other methods have: {missing}")
            if 0 < len(seeds) < ENOUGH_SEEDS:
                few.append(len(seeds))
    if few:
        found.append(
            f"some methods have as few as {count_text(min(few), 'seed')}: with fewer than "
            f"{ENOUGH_SEEDS}, differences between methods are mostly noise"
        )
    if few and min(few) < MIN_SEEDS:
        found.append(
            f"– stands for an interval that fewer than {MIN_SEEDS} seeds on one environment cannot "
            "carry: it would call too many equal methods different"
        )
    return found
