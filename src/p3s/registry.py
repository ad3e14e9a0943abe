"""Classes by name, imported when they are asked for: a list of them costs no import of jax."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple, TypeVar

Registered = TypeVar("Registered")


class Listed(NamedTuple):
    """A class of this package that need not be imported yet."""

    path: str
    """Its module and its name: 'p3s.schemes.p3s:P3S'."""
    summary: str
    """The first line of its docstring."""
    note: str
    """What else a list of them says."""

    def load(self) -> Any:
        """The class."""
        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module), name)


class Registry(MutableMapping[str, type[Registered]]):
    """Known classes by name: those of this package, and those that were registered."""

    def __init__(self, listed: dict[str, Listed]) -> None:
        self.listed = listed
        self._classes: dict[str, type[Registered] | None] = dict.fromkeys(listed)

    def __getitem__(self, name: str) -> type[Registered]:
        found = self._classes[name]
        if found is None:
            found = self._classes[name] = self.listed[name].load()
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
        """Name, first line of the docstring, and note of each."""
        for name, made in self._classes.items():
            if name in self.listed:
                yield name, self.listed[name].summary, self.listed[name].note
            else:
                yield name, (made.__doc__ or "").split("\n")[0], getattr(made, "actions", "")

    def class_named(self, name: str) -> type[Registered]:
        """A class of this package by its own name: 'P3S'. AttributeError if there is none."""
        for listed in self.listed.values():
            if listed.path.endswith(f":{name}"):
                return listed.load()
        raise AttributeError(name)


def search_current_folder() -> None:
    """Let modules that a user names be found in the current folder too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
