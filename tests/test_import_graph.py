"""Packages import with the flow: no two need each other, but for those listed here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import p3s

ROOT = Path(p3s.__file__).parent
KNOWN = [
    # A run is opened, trained and recorded by modules that know each other: opening makes a
    # Training, which writes to a folder of runs; policies are judged there and saved from there.
    {"cluster", "evaluation", "policies", "runs", "train"},
    # Learners hold a scheme, which needs the rhythm of learning; experience.kinds imports Config,
    # which plugins make from schemes.
    {"config", "experience", "learning", "plugins", "schemes"},
]
"""Packages that still need each other; a list may become shorter only."""
IN_FUNCTIONS = {
    # Commands import what they need when they are asked for, extras when they are used.
    "cli -> cli.early": "only train and resume say something first",
    "cli -> cli.help": "p3s alone imports nothing",
    "cli.help -> cli.train": "only for --help and --help-all",
    "cli -> envs.mujoco_setup": "p3s --help imports nothing",
    "cli -> plugins.loading": "only with --import",
    "cli -> runs.trust": "only with --trust",
    "cli.compare -> report.figures": "only with --out: needs matplotlib, an extra",
    "cli.report -> report.figures": "only with --figures: needs matplotlib, an extra",
    "cli.report -> report.tables": "only with --figures",
    "cli.report -> tuning.page": "only of a search: needs optuna, an extra, and jax",
    "cli.study -> cli.study_actions": "a mistyped name is told before jax is imported",
    "cli.study_actions -> report.export": "needs polars, an extra",
    "cli.study_actions -> study.on_ray": "needs ray, an extra",
    "cli.tune -> study.on_ray": "needs ray, an extra",
    "cluster.places -> cluster.on_ray": "needs ray, an extra",
    "callbacks -> policies.film": "only with video_period: needs an extra",
    "callbacks -> policies.trained": "a run imports the callbacks",
    "envs -> envs.functional_delay": "needs jax, which workers that only play do without",
    "envs.workers -> envs.device_copies": "needs jax, which workers that only play do without",
    "envs -> envs.on_host": "needs jax, which workers that only play do without",
    "envs.own -> envs.functional_kinds": "needs jax, which workers that only play do without",
    "envs.own -> envs.on_host": "needs jax, which workers that only play do without",
    # Lists of algorithms and schemes cost no import of jax.
    "algorithms -> algorithms.base": "names are listed without jax",
    "schemes -> schemes.base": "names are listed without jax",
    "plugins.loading -> algorithms.base": "names are checked without jax",
    "plugins.loading -> algorithms.off_policy": "names are checked without jax",
    "plugins.loading -> algorithms.on_policy": "names are checked without jax",
    "plugins.loading -> networks": "names are checked without jax",
    "plugins.loading -> schemes.base": "names are checked without jax",
}
"""Imports inside functions, each with its reason."""

Import = tuple[str, str, bool]
"""Who imports which module, and whether inside a function; without 'p3s.'."""


def imports() -> list[Import]:
    files = {_name(file): file for file in ROOT.rglob("*.py")}
    return [
        (importer, module, inside)
        for importer, file in files.items()
        for module, inside in _imported(ast.parse(file.read_text()), set(files), False)
        if module in files
    ]


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.AST, modules: set[str], inside: bool) -> Iterator[tuple[str, bool]]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                whole = [f"{module}.{alias.name}" for alias in names]
                known = {f"p3s.{name}" for name in modules}
                found = [name if name in known else module for name in whole]
            case _:
                found = []
        for name in dict.fromkeys(found):
            if name.startswith("p3s."):
                yield name.removeprefix("p3s."), inside
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imported(node, modules, inside or function)


def rooms_that_need_each_other(found: list[Import]) -> set[frozenset[str]]:
    """The strongly connected components of two or more packages and top-level modules."""
    edges: dict[str, set[str]] = defaultdict(set)
    for importer, module, inside in found:
        # The front door itself and the entry point import everything.
        if not inside and importer not in ("", "__main__"):
            edges[importer.split(".")[0]].add(module.split(".")[0])
    reached = {room: _reached(room, edges) for room in list(edges)}
    return {
        frozenset(other for other in reached[room] if room in reached.get(other, ()))
        for room in reached
        if any(room in reached.get(other, ()) for other in reached[room] - {room})
    }


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    reached, left = set[str](), [start]
    while left:
        for room in edges.get(left.pop(), set()) - reached:
            reached.add(room)
            left.append(room)
    return reached


def test_no_packages_need_each_other_but_the_known_ones():
    assert rooms_that_need_each_other(imports()) == set(map(frozenset, KNOWN))


def test_imports_in_functions_have_a_reason():
    found = {f"{importer} -> {module}" for importer, module, inside in imports() if inside}
    assert found == IN_FUNCTIONS.keys()


def test_a_cycle_would_be_found():
    found = [("a.x", "b.y", False), ("b.y", "c", False), ("c", "a.z", False), ("d", "a", False)]
    assert rooms_that_need_each_other(found) == {frozenset("abc")}
    # Not if it is only inside a function.
    assert rooms_that_need_each_other([*found[:2], ("c", "a.z", True)]) == set()
