"""Read run folders and study folders. Intact runs are used; problems are reported.

A study folder names its runs in `cells.json`. Other run folders, and folders that contain some,
get their labels from the runs' configurations.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from p3s.errors import UserError, printable
from p3s.fields.checks import Checks, is_count, is_number, misfit, or_none
from p3s.report.failures import Failure, read_failure
from p3s.report.formatting import first_names
from p3s.report.references import Reference, read_references
from p3s.runs.checksums import parse_json
from p3s.runs.files import read_bytes
from p3s.runs.records import read_config
from p3s.runs.rows import check_config, read_intact_rows
from p3s.runs.settings import label_of, method_label, settings


@dataclass(frozen=True)
class RunResult:
    """One run: its configuration and its records."""

    path: Path
    method: str
    env: str
    seed: int
    config: dict[str, Any]
    evaluations: list[dict[str, Any]]
    lineage: list[dict[str, Any]] = field(default_factory=list)
    paper: float | None = None

    @property
    def last_step(self) -> int:
        """Environment steps at the last evaluation; 0 before the first."""
        return self.evaluations[-1]["step"] if self.evaluations else 0

    @property
    def complete(self) -> bool:
        """Whether the run was evaluated at its last step."""
        return self.last_step >= self.config["steps"]

    @property
    def num_learners(self) -> int:
        """The number of policies that the score is a maximum over."""
        return len(self.evaluations[-1]["learner_returns"]) if self.evaluations else 0

    @property
    def name(self) -> str:
        """Method, environment and seed in one phrase."""
        return f"{self.method} on {self.env}, seed {self.seed}"


@dataclass(frozen=True)
class Results:
    """All runs with at least one evaluation, notes on the others, and failures."""

    title: str
    runs: list[RunResult]
    notes: list[str] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """Methods in the order of their first runs."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def envs(self) -> list[str]:
        """Environments in the order of their first runs."""
        return list(dict.fromkeys(run.env for run in self.runs))

    def select(self, method: str | None = None, env: str | None = None) -> list[RunResult]:
        """The runs of a method, on an environment, or both."""
        return [
            run
            for run in self.runs
            if (method is None or run.method == method) and (env is None or run.env == env)
        ]


def labels(config: dict[str, Any]) -> tuple[str, str, int]:
    """Method, environment and seed of a run; ValueError if this is not its configuration."""
    try:
        check_config(config)
        return method_label(config), label_of(config["environment"]), config["seed"]
    except (KeyError, TypeError, AttributeError, UserError) as error:
        raise ValueError(_reason(error)) from error


def read_run(path: Path, cell: dict[str, Any] | None = None) -> tuple[RunResult, list[str]]:
    """A run folder and notes on its problems; `cell` is its entry in cells.json."""
    config, cell = read_config(path), cell or {}
    try:
        method, env, seed = labels(config)
    except ValueError as error:
        file = path / "config.json"
        raise UserError(f"{file} is not the configuration of a run: {error}") from error
    evaluations, evaluation_note = read_intact_rows(path, "evaluations")
    lineage, lineage_note = read_intact_rows(path, "lineage")
    run = RunResult(
        path=path,
        method=cell.get("method", method),
        env=cell.get("env", env),
        seed=cell.get("seed", seed),
        config=config,
        evaluations=evaluations,
        lineage=lineage,
        paper=cell.get("paper"),
    )
    return run, [note for note in (evaluation_note, lineage_note) if note is not None]


def read_results(paths: Iterable[Path], title: str | None = None) -> Results:
    """The results under these paths: study folders, run folders, and folders that contain runs."""
    paths = list(paths)
    if not paths:
        raise UserError("nothing to report on: give run folders or a study folder")
    results = Results(title or "", [])
    for path in paths:
        if (path / "cells.json").is_file():
            found = _read_study(path)
        elif (path / "config.json").is_file():
            found = _read_folders([path], path.resolve().name)
        elif path.is_dir():
            folders = sorted(file.parent for file in path.rglob("config.json"))
            if not folders:
                raise UserError(f"{path} holds no runs: found no config.json in it or below it")
            found = _read_folders(folders, path.resolve().name)
        else:
            what = "is a file" if path.exists() else "does not exist"
            raise UserError(f"{path} {what}: expected a run folder or a folder that contains runs")
        results = Results(
            results.title or found.title,
            results.runs + found.runs,
            results.notes + found.notes,
            results.failures + found.failures,
            {**found.references, **results.references},
        )
    if not results.runs:
        reasons = "; ".join(results.notes) or "no run has started"
        raise UserError(f"nothing to report: {reasons}")
    results = dataclasses.replace(results, runs=labeled_by_settings(results.runs))
    return _keep_one_run_per_seed(results)


def _read_study(folder: Path) -> Results:
    file = folder / "cells.json"
    try:
        study = parse_json(read_bytes(file))
        cells = [check_cell(cell) for cell in study["cells"]]
        title = printable(str(study.get("title") or study.get("study") or folder.name))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged: {_reason(error)}") from error
    found = Results(title, [])
    try:
        found.references.update(read_references(folder))
    except ValueError as error:
        found.notes.append(f"left out: {error}")
    waiting = []
    for cell in cells:
        name, path = cell["id"], folder / cell["run"]
        failure = read_failure(folder / "failures" / f"{name}.json")
        run = _add(found, path, cell) if (path / "config.json").exists() else None
        if failure is not None and not (run is not None and run.complete):
            found.failures.append((name, failure))
        elif not (path / "config.json").exists():
            waiting.append(name)
    if waiting:
        count = f"{len(waiting)} of {len(cells)} runs"
        found.notes.append(f"{count} have not started: {first_names(waiting)}")
    return found


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


_CELL: Checks = {
    **dict.fromkeys(("id", "run", "method", "env"), _is_name),
    "seed": is_count,
    "paper": or_none(is_number),
}


def check_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """An entry of cells.json; ValueError if a study could not have written it."""
    name = misfit(cell, _CELL)
    if name is not None:
        raise ValueError(f"the {name} of a run is missing or invalid")
    for name in ("id", "run"):
        path = PurePath(cell[name])
        if path.is_absolute() or ".." in path.parts or "\0" in cell[name]:
            raise ValueError(f"{cell[name]!r} is not in the study's folder")
    return {**cell, "method": printable(cell["method"]), "env": printable(cell["env"])}


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _read_folders(folders: list[Path], title: str) -> Results:
    found = Results(title, [])
    for path in folders:
        _add(found, path, None)
    return found


def _add(found: Results, path: Path, cell: dict[str, Any] | None) -> RunResult | None:
    """Read a run and add it; a run that cannot be used becomes a note."""
    try:
        run, notes = read_run(path, cell)
    except UserError as error:
        found.notes.append(f"left out: {error}")
        return None
    found.notes.extend(notes)
    if not run.evaluations:
        found.notes.append(f"left out: {path} has no evaluation yet")
        return None
    found.runs.append(run)
    return run


LABELED, FEWEST_WORDS = ("buffer_size", "shards", "exchange_period", "on_divergence"), 3
"""Settings outside the groups that change what is learned; how many a label names at least."""


def labeled_by_settings(runs: list[RunResult]) -> list[RunResult]:
    """The runs with the settings in their labels by which runs of one label differ."""
    groups: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for run in runs:
        groups[run.method, run.env].append(run)
    added = {key: _differences(own) for key, own in groups.items()}
    return [
        dataclasses.replace(run, method=", ".join([run.method, *added[run.method, run.env].pop(0)]))
        for run in runs
    ]


def _differences(runs: list[RunResult]) -> list[list[str]]:
    """For each run, as few of the settings in which the runs differ as tell all of them apart."""
    flats = [settings(run.config) for run in runs]
    names = [
        name
        for name in dict.fromkeys(name for flat in flats for name in flat)
        if ("." in name or name in LABELED)
        and any(flat.get(name) != flats[0].get(name) for flat in flats)
    ]
    words = [[f"{name.split('.')[-1]} {flat.get(name, '–')}" for name in names] for flat in flats]
    kinds = len(set(map(tuple, words)))
    most = FEWEST_WORDS
    while len({tuple(own[:most]) for own in words}) < kinds:
        most += 1
    left = len(names) - most
    more = [f"and {left} more"] if left > 0 else []
    return [own[:most] + more for own in words]


def _keep_one_run_per_seed(results: Results) -> Results:
    """Keep the longest of several runs with the same method, environment and seed.

    They repeat the same random numbers, so counting both would fake a replication.
    """
    kept: dict[tuple[str, str, int], RunResult] = {}
    repeated: set[Path] = set()
    for run in results.runs:
        key = (run.method, run.env, run.seed)
        if key in kept and run.path.resolve() != kept[key].path.resolve():
            shorter = run if run.last_step <= kept[key].last_step else kept[key]
            repeated.add(shorter.path)
        if key not in kept or run.last_step > kept[key].last_step:
            kept[key] = run
    notes = [f"left out: {path} repeats the seed of a run at least as long" for path in repeated]
    return dataclasses.replace(
        results, runs=list(kept.values()), notes=results.notes + sorted(notes)
    )
