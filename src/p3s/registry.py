"""Classes by name, imported when they are asked for: a list of them costs no import of jax."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib import resources
from typing import NamedTuple, TypeVar

Registered = TypeVar("Registered")


class Listed(NamedTuple):
    """A class in a module of its own, which need not be imported yet."""

    made: str
    """The name of the class; the module has the name by which it is registered."""
    note: str
    """What a list says of it besides the first line of its docstring."""


class Registry(MutableMapping[str, type[Registered]]):
    """Known classes by name: those of a package of ours, and those that were registered."""

    def __init__(self, package: str, listed: dict[str, Listed]) -> None:
        self._package, self._listed = package, listed
        self._classes: dict[str, type[Registered] | None] = dict.fromkeys(listed)

    def __getitem__(self, name: str) -> type[Registered]:
        found = self._classes[name]
        if found is None:
            module = importlib.import_module(f"{self._package}.{name}")
            found = self._classes[name] = getattr(module, self._listed[name].made)
        return found

    def __setitem__(self, name: str, made: type[Registered]) -> None:
        self._classes[name] = made

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def summaries(self) -> Iterator[tuple[str, str, str]]:
        """Name, first line of the docstring, and note of each; nothing is imported."""
        for name, made in self._classes.items():
            if name in self._listed:
                yield name, self._docstring(name).split("\n")[0], self._listed[name].note
            else:
                yield name, (made.__doc__ or "").split("\n")[0], getattr(made, "actions", "")

    def _docstring(self, name: str) -> str:
        """The docstring of a class of the package, from its source."""
        source = resources.files(self._package).joinpath(f"{name}.py").read_text(encoding="utf-8")
        classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
        own = next(node for node in classes if node.name == self._listed[name].made)
        return ast.get_docstring(own) or ""

    def class_named(self, made: str) -> type[Registered]:
        """A class of the package by its own name: 'P3S'. AttributeError if there is none."""
        for name, listed in self._listed.items():
            if listed.made == made:
                return self[name]
        raise AttributeError(made)


def search_current_folder() -> None:
    """Let modules that a user names be found in the current folder too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
