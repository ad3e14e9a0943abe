"""The cells of a study: one run per method, environment and seed.

Names and fields are checked here against the registries, before anything runs. An error names the
line of the study's file.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from p3s.config.run import Config, resolve_spec
from p3s.config.spec import RunSpec
from p3s.config.suitability import check_environment
from p3s.envs import make_env
from p3s.envs.packages import unknown_environment
from p3s.envs.prefixes import has_prefix
from p3s.errors import UserError, unknown
from p3s.runs.trust import modules_in, refuse_modules
from p3s.schemes import scheme_name
from p3s.study.definition import Environment, Method, Study, slug


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    id: str
    """Name of its run folder; depends on method, environment and seed alone."""
    method: Method
    env: Environment
    seed: int
    paper: float | None
    config: Config

    def to_json(self) -> dict[str, Any]:
        """Its entry in cells.json."""
        entry = {
            "id": self.id,
            "run": f"runs/{self.id}",
            "method": self.method.label,
            "env": self.env.label,
            "seed": self.seed,
            "paper": self.paper,
        }
        return entry if self.env.group is None else {**entry, "group": self.env.group}


def make_cells(study: Study) -> list[Cell]:
    """All cells of a study, checked; seeds vary slowest, so that every method has results early."""
    for entry in (*study.environments, *study.methods):
        _check_modules(study, entry)
    for env in study.environments:
        _check_environment(study, env)
    configs = [
        (method, env, _config(study, method, env))
        for env in study.environments
        for method in study.methods
    ]
    return [
        Cell(
            id=f"{slug(method.label)}_{slug(env.label)}_seed{seed}",
            method=method,
            env=env,
            seed=seed,
            paper=study.paper.get((method.label, env.label)),
            config=replace(config, options=replace(config.options, seed=seed)),
        )
        for seed in study.seeds
        for method, env, config in configs
    ]


def _check_modules(study: Study, entry: Environment | Method) -> None:
    """Refuse a module that only the study's file names: it may be someone else's."""
    if isinstance(entry, Environment):
        named = modules_in([entry.name.id, entry.name.kwargs, list(entry.name.wrappers)])
    else:
        named = modules_in([entry.scheme, entry.algorithm])
    try:
        refuse_modules(named, "the study")
    except UserError as error:
        raise study.problem(entry.at, str(error)) from error


def _check_environment(study: Study, env: Environment) -> None:
    """Refuse an id that Gymnasium does not know; an id with a module is checked by its runs."""
    if ":" in env.name.id:
        return
    try:
        gymnasium.spec(env.name.id)
    except gymnasium.error.Error as error:
        message = unknown_environment(env.name.id)
        raise study.problem(env.at, str(message), env.written) from error


def check_environments(study: Study, cells: list[Cell]) -> None:
    """Make each environment once, and refuse methods that cannot learn its kind of actions.

    Environments from a module of their own ("module:id") are checked by their runs.
    """
    for env in study.environments:
        if ":" in env.name.id and not has_prefix(env.name.id):
            continue
        try:
            made = make_env(env.name)
        except UserError as error:
            raise study.problem(env.at, str(error), env.written) from error
        for cell in cells:
            if cell.env is env:
                try:
                    check_environment(cell.config, made)
                except UserError as error:
                    raise study.problem(cell.method.at, str(error)) from error
        made.close()


def _config(study: Study, method: Method, env: Environment) -> Config:
    """The configuration of a run; an error names the line of the field that it is about."""
    spec = RunSpec(
        env.name,
        method.scheme,
        method.algorithm,
        method.preset,
        fields={
            **method.fields,
            **env.fields,
            "seed": study.seeds[0],
            "steps": study.steps_on(env),
        },
        origins={
            "env": study.place(method.at),
            **{key: study.place(at) for key, at in method.origins.items()},
            **dict.fromkeys(env.fields, study.place(env.at, env.written)),
        },
    )
    try:
        with spec.located():
            for field in ("stop_at", "patience"):
                if spec.fields.get(field) is not None:
                    message = "a study compares runs of one length: no stop_at, no patience"
                    raise UserError(message, field)
        config = resolve_spec(spec)
    except UserError as error:
        mine = error.field in env.fields
        whose = f"environment {env.label!r}" if mine else f"method {method.label!r}"
        raise UserError(f"{error} ({whose})", error.field) from error
    if method.suits not in (None, config.algorithm.name):
        message = f"{config.algorithm.name} suits {env.label}: give this method a label of its own"
        raise study.problem(method.at, f"{message} (method {method.label!r})")
    return config


# ---------------------------------------------------------------------- selection


def select(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that match `only`, such as 'env=Hopper-v5,scheme=p3s'.

    A cell must match every key; values of the same key are alternatives. Values may contain
    * and ?, and case is ignored.
    """
    if only is None:
        return cells
    wanted: dict[str, list[str]] = {}
    for part in only.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UserError(f"--only takes KEY=VALUE pairs, as in env=Hopper,seed=0, not {part!r}")
        if key not in _NAMES_OF:
            raise unknown("--only key", key, _NAMES_OF)
        known = {name.lower() for cell in cells for name in _NAMES_OF[key](cell)}
        if not fnmatch.filter(known, value.lower()):
            raise unknown(f"{key} in this study", value, known)
        wanted.setdefault(key, []).append(value.lower())
    chosen = [
        cell for cell in cells if all(_matches(cell, key, values) for key, values in wanted.items())
    ]
    if not chosen:
        raise UserError(f"--only {only} matches none of the {len(cells)} cells")
    return chosen


def _matches(cell: Cell, key: str, values: list[str]) -> bool:
    names = [name.lower() for name in _NAMES_OF[key](cell)]
    return any(fnmatch.filter(names, value) for value in values)


def _environment_names(cell: Cell) -> set[str]:
    label = cell.env.label
    return {label, cell.env.written, re.sub(r"-v\d+$", "", label)}


_NAMES_OF = {
    "env": _environment_names,
    "method": lambda cell: {cell.method.label},
    "scheme": lambda cell: {cell.method.scheme, scheme_name(cell.method.scheme)},
    "algorithm": lambda cell: {cell.method.algorithm or "", cell.config.algorithm.name},
    "preset": lambda cell: {cell.method.preset},
    "seed": lambda cell: {str(cell.seed)},
    "id": lambda cell: {cell.id},
}
"""The keys of --only, and the names by which each of them finds a cell."""
