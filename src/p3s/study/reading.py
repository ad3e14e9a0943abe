"""Read a study from its TOML file and expand its grids.

    name = "mine"                        defaults to the name of the file
    steps = 100_000                      environment steps per run; an environment may set fewer
    seeds = 5                            a count or a list
    environments = ["Hopper-v5", {id = "Ant-v5", delay = 20, steps = 50_000, fields = {...}}]
    preset = "recommended"

    [fields]                             fields of every run: the options of `p3s train`
    [grid]                               lists of values; every combination runs
    [[methods]]                          label, scheme, algorithm, preset, any field, its own grid
    [paper."METHOD"]                     published scores by environment, for reports

This module checks the structure of the file. Names and fields are checked when the cells are made
(cells.py).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from p3s.config.environments import default_algorithm
from p3s.config.presets import DEFAULT_PRESET
from p3s.config.toml_lines import KeyPath, parse_toml
from p3s.envs import parse_name
from p3s.errors import unknown
from p3s.fields.types import Mismatch, convert, show
from p3s.runs.settings import environment_label
from p3s.study.definition import SEEDS, STEPS, Environment, Method, Study, slug

_TOP = {
    "name": str,
    "title": str,
    "steps": int,
    "seeds": int | list,  # pyright: ignore[reportMissingTypeArgument]
    "preset": str,
    "environments": list,
    "fields": dict,
    "grid": dict,
    "methods": list,
    "paper": dict,
}
_ENVIRONMENT = {
    "id": str,
    "label": str,
    "delay": int | str,
    "kwargs": dict,
    "wrappers": tuple[str, ...],
    "group": str,
    "steps": int,
    "fields": dict,
}
_NAMES = ("scheme", "algorithm", "preset")
_TOP_LEVEL = {
    "seed": "seed is set at the top of the file: seeds = [...]",
    "steps": "steps is set at the top of the file or in an environment: steps = ...",
    "env": "env is set at the top of the file: environments = [...]",
    "delay": "delay belongs in an environment or in [grid]",
}
"""Options of `p3s train` that are not fields of a study, and where they belong."""

MOST = 10_000
"""Seeds, or points of a grid: a short file must not name more cells than fit into memory."""


def parse(text: str, file: str, default_name: str) -> Study:
    """Parse a study from the text of its file."""
    blank = Study(file, text, default_name, "", STEPS, (), (), ())
    content = parse_toml(text, file)
    _check_keys(blank, content, (), _TOP)
    name = content.get("name", default_name)
    if not re.fullmatch(r"\w[\w.-]*", name):
        expected = "expected letters, digits, '_', '.' and '-', with no '.' or '-' at the start"
        raise blank.problem(("name",), f"name: {expected}, not {show(name)}")
    steps = content.get("steps", STEPS)
    if steps < 1:
        raise blank.problem(("steps",), f"steps must be at least 1, not {steps}")
    environments = tuple(_environments(blank, content))
    methods = tuple(_methods(blank, content, environments))
    for kind, entries in (("environments", environments), ("methods", methods)):
        _refuse_duplicates(blank, kind, entries)
    return dataclasses.replace(
        blank,
        name=name,
        title=content.get("title", name),
        steps=steps,
        seeds=_seeds(blank, content.get("seeds", SEEDS)),
        environments=environments,
        methods=methods,
        paper=_paper(blank, content.get("paper", {}), environments, methods),
    )


def _check_keys(study: Study, table: dict[str, Any], at: KeyPath, known: dict[str, Any]) -> None:
    for key, value in table.items():
        if key not in known:
            raise study.problem((*at, key), str(unknown("key", key, known)), key)
        _check_type(study, value, (*at, key), known[key])


def _check_type(study: Study, value: Any, at: KeyPath, expected: Any) -> None:
    try:
        convert(value, expected)
    except Mismatch as error:
        raise study.problem(at, f"{at[-1]}: {error}") from error


def _seeds(study: Study, seeds: int | list[Any]) -> tuple[int, ...]:
    if isinstance(seeds, int):
        if seeds < 1:
            raise study.problem(("seeds",), f"seeds must be at least 1, not {seeds}")
        if seeds > MOST:
            raise study.problem(("seeds",), f"seeds must be at most {MOST:,}, not {seeds:,}")
        return tuple(range(seeds))
    if not seeds:
        message = "seeds is empty: expected a count or a list of whole numbers"
        raise study.problem(("seeds",), message)
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            message = f"seeds: expected whole numbers of at least 0, not {show(seed)}"
            raise study.problem(("seeds",), message)
        if seeds.count(seed) > 1:
            raise study.problem(("seeds",), f"seeds: {seed} is listed twice")
    return tuple(seeds)


def _environments(study: Study, content: dict[str, Any]) -> Iterator[Environment]:
    entries = content.get("environments", [])
    if not entries:
        message = 'environments is empty: expected a list such as ["Hopper-v5"]'
        raise study.problem(("environments",), message)
    delays = content.get("grid", {}).get("delay", [None])
    _check_list(study, delays, ("grid", "delay"))
    for index, entry in enumerate(entries):
        at: KeyPath = ("environments", index)
        if isinstance(entry, str):
            entry = {"id": entry}
        elif not isinstance(entry, dict) or "id" not in entry:
            message = 'expected names, or tables such as {id = "Ant-v5", delay = 20}'
            raise study.problem(("environments",), f"environments: {message}, not {show(entry)}")
        _check_keys(study, entry, at, _ENVIRONMENT)
        if "delay" in entry and delays != [None]:
            raise study.problem(at, "delay is also in [grid]: set it in one place only", "delay")
        for delay in delays:
            yield _environment(study, entry, entry.get("delay", delay), at)


def _environment(study: Study, entry: dict[str, Any], delay: Any, at: KeyPath) -> Environment:
    if delay is not None and delay != "end" and (type(delay) is not int or delay < 1):
        place = at if "delay" in entry else ("grid", "delay")
        expected = 'expected a whole number of at least 1, or "end"'
        raise study.problem(place, f"delay: {expected}, not {show(delay)}", "delay")
    wrappers = tuple(entry.get("wrappers", ()))
    name = parse_name(entry["id"], delay, entry.get("kwargs"), wrappers)
    # Without the arguments: run folders of studies are named after it.
    label = entry.get("label", environment_label(parse_name(entry["id"], delay)))
    steps, fields = entry.get("steps"), entry.get("fields", {})
    if steps is not None and steps < 1:
        raise study.problem(at, f"steps must be at least 1, not {steps}", "steps")
    _refuse_top_level(study, fields, (*at, "fields"))
    for key in _NAMES:
        if key in fields:
            raise study.problem((*at, "fields", key), f"{key} belongs in [[methods]] or [grid]")
    return Environment(entry["id"], name, label, entry.get("group"), at, steps, fields)


def _methods(
    study: Study, content: dict[str, Any], environments: tuple[Environment, ...]
) -> Iterator[Method]:
    tables = content.get("methods", [{}])
    if not tables:
        message = "methods is empty: expected at least one table [[methods]]"
        raise study.problem(("methods",), message)
    grid = {key: values for key, values in content.get("grid", {}).items() if key != "delay"}
    shared: dict[str, Any] = dict(content.get("fields", {}))
    for key in _NAMES[:2]:
        if key in shared:
            raise study.problem(("fields", key), f"{key} belongs in [[methods]] or [grid]")
    _refuse_top_level(study, shared, ("fields",))
    places: dict[str, KeyPath] = {key: ("fields", key) for key in shared}
    if "preset" in content and "preset" not in shared:
        shared, places["preset"] = {"preset": content["preset"], **shared}, ("preset",)
    for index, table in enumerate(tables):
        at: KeyPath = ("methods", index)
        if not isinstance(table, dict):
            raise study.problem(("methods",), f"methods: expected tables, not {show(table)}")
        origins: dict[str, KeyPath] = {
            **places,
            **{key: (*at, key) for key in table},
        }
        _check_type(study, table.get("grid", {}), (*at, "grid"), dict)
        _refuse_top_level(study, table, at)
        own = {key: value for key, value in table.items() if key not in ("label", "grid")}
        _check_type(study, table.get("label", ""), (*at, "label"), str)
        axes = _axes(study, grid, table, at, origins)
        if math.prod(map(len, axes.values())) > MOST:
            raise study.problem(at, f"a grid has at most {MOST:,} points")
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            fields = {**shared, **own, **point}
            yield _method(study, table.get("label"), fields, point, at, origins, environments)


def _refuse_top_level(study: Study, table: dict[str, Any], at: KeyPath) -> None:
    for key in table:
        if key in _TOP_LEVEL:
            raise study.problem((*at, key), _TOP_LEVEL[key])


def _axes(
    study: Study,
    grid: dict[str, Any],
    table: dict[str, Any],
    at: KeyPath,
    origins: dict[str, KeyPath],
) -> dict[str, list[Any]]:
    """The lists of a method's grid, common and its own; records their places in `origins`."""
    axes: dict[str, list[Any]] = {}
    own = (*at, "grid")
    for place, values in ((("grid",), grid), (own, table.get("grid", {}))):
        _refuse_top_level(study, values, place)
        for key, choices in values.items():
            _check_list(study, choices, (*place, key))
            if key in axes or (key in table and key != "grid"):
                message = f"{key} is set twice for this method: set it in one place only"
                raise study.problem((*place, key), message)
            axes[key] = choices
            origins[key] = (*place, key)
    return axes


def _check_list(study: Study, choices: Any, at: KeyPath) -> None:
    if not isinstance(choices, list):
        raise study.problem(at, f"{at[-1]}: expected a list of values, not {show(choices)}")
    if not choices:
        raise study.problem(at, f"{at[-1]}: the list is empty, so nothing would run")


def _method(
    study: Study,
    label: str | None,
    fields: dict[str, Any],
    point: dict[str, Any],
    at: KeyPath,
    origins: dict[str, KeyPath],
    environments: tuple[Environment, ...],
) -> Method:
    for key in _NAMES:
        _check_type(study, fields.get(key, ""), origins.get(key, (key,)), str)
    scheme, preset = fields.pop("scheme", "p3s"), fields.pop("preset", DEFAULT_PRESET)
    algorithm = fields.pop("algorithm", None)
    suited = {"ppo" if scheme == "rollout" else default_algorithm(e.name) for e in environments}
    suits = suited.pop() if label is None and algorithm is None and len(suited) == 1 else None
    shown = [key for key in point if label is not None or key not in ("scheme", "algorithm")]
    alone = scheme in ("single", "rollout")
    both = [scheme, *filter(None, (algorithm, suits))]
    name = label or (both[-1] if alone else "-".join(both))
    name = " ".join([name, *(f"{key}={show(point[key]).strip(chr(34))}" for key in shown)])
    return Method(name, scheme, algorithm, preset, fields, at, dict(origins), suits)


def _refuse_duplicates(study: Study, kind: str, entries: tuple[Any, ...]) -> None:
    """Labels become folder names: two that give the same name would share their runs."""
    seen: dict[str, str] = {}
    for entry in entries:
        name = slug(entry.label)
        if name in seen:
            what = f"two {kind} are called {entry.label!r}"
            if seen[name] != entry.label:
                what = f"{kind} {seen[name]!r} and {entry.label!r} have the same folder name"
            raise study.problem(entry.at, f"{what}: give one of them a different label")
        seen[name] = entry.label


def _paper(
    study: Study,
    tables: dict[str, Any],
    environments: tuple[Environment, ...],
    methods: tuple[Method, ...],
) -> dict[tuple[str, str], float]:
    labels = [method.label for method in methods]
    names = {env.written: env.label for env in environments}
    names |= {env.label: env.label for env in environments}
    scores = {}
    for label, table in tables.items():
        if label not in labels:
            raise study.problem(("paper", label), str(unknown("method", label, labels)))
        _check_type(study, table, ("paper", label), dict)
        for env, score in table.items():
            at = ("paper", label, env)
            if env not in names:
                raise study.problem(at, str(unknown("environment", env, names)))
            _check_type(study, score, at, float)
            scores[label, names[env]] = float(score)
    return scores
