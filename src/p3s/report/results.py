"""Read run folders and study folders. Intact runs are used; problems are reported.

A study folder names its runs in `cells.json`. Other run folders, and folders that contain some,
get their labels from the runs' configurations.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.envs.names import PAPER_ENVIRONMENTS, EnvName
from p3s.errors import UserError, printable
from p3s.presets import DEFAULT_PRESET
from p3s.report.formatting import first_names
from p3s.report.references import Reference, read_references
from p3s.report.rows import check_cell, check_config, read_intact_rows
from p3s.runs.checksums import parse_json
from p3s.runs.failures import Failure, read_failure
from p3s.runs.files import read_bytes
from p3s.runs.records import read_config


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


def method_label(config: dict[str, Any]) -> str:
    """Scheme and algorithm, with the preset unless it is the default."""
    preset = "" if config["preset"] == DEFAULT_PRESET else f" ({config['preset']})"
    return printable(f"{config['scheme']}-{config['algorithm']}{preset}")


def environment_label(config: dict[str, Any]) -> str:
    """The environment's id, its delay, and its arguments beyond those that the id implies."""
    env = config["environment"]
    if env is None:
        return "custom"
    implied = PAPER_ENVIRONMENTS.get(EnvName(env["id"]).family, {})
    given = {key: value for key, value in env["kwargs"].items() if implied.get(key) != value}
    delay = {} if env["delay"] is None else {"delay": env["delay"]}
    words = [env["id"], *(f"{key} {value}" for key, value in {**delay, **given}.items())]
    return printable(", ".join(words))


def read_run(path: Path, cell: dict[str, Any] | None = None) -> tuple[RunResult, list[str]]:
    """A run folder and notes on its problems; `cell` is its entry in cells.json."""
    config, cell = read_config(path), cell or {}
    try:
        method, env, seed = method_label(config), environment_label(config), config["seed"]
        settings(config)
        check_config(config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        file = path / "config.json"
        raise UserError(f"{file} is not the configuration of a run: {reason}") from error
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
    return _keep_one_run_per_seed(_label_by_settings(results))


def _read_study(folder: Path) -> Results:
    file = folder / "cells.json"
    try:
        study = parse_json(read_bytes(file))
        cells = [check_cell(cell) for cell in study["cells"]]
        title = printable(str(study.get("title") or study.get("study") or folder.name))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{file} is damaged: {reason}") from error
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


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """Every setting of a run by its dotted name, without the seed and the provenance."""
    flat: dict[str, Any] = {"environment": environment_label(config)}
    flat |= {
        f"environment.{k}": v for k, v in (config["environment"] or {}).get("kwargs", {}).items()
    }
    skipped = ("environment", "scheme_fields", "algorithm_fields", "seed", "tensorboard", "log",
               "versions", "commit", "machine", "signature")  # fmt: skip
    flat |= {name: value for name, value in config.items() if name not in skipped}
    for group in ("scheme", "algorithm"):
        flat |= {f"{group}.{name}": value for name, value in config[f"{group}_fields"].items()}
    return flat


def _label_by_settings(results: Results) -> Results:
    """Add settings to the labels of runs that would otherwise mix them in one method."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, run in enumerate(results.runs):
        groups[run.method, run.env].append(index)
    runs = list(results.runs)
    for indices in groups.values():
        flats = [settings(runs[index].config) for index in indices]
        names = [
            name
            for name in dict.fromkeys(name for flat in flats for name in flat)
            if "." in name and any(flat.get(name) != flats[0].get(name) for flat in flats)
        ]
        for index, flat in zip(indices, flats, strict=True):
            if names:
                values = [f"{name.split('.')[1]} {flat.get(name, '–')}" for name in names]
                label = f"{runs[index].method}, {first_names(values, most=3)}"
                runs[index] = dataclasses.replace(runs[index], method=label)
    return dataclasses.replace(results, runs=runs)


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
