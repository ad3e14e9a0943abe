"""What a study is: methods × environments × seeds, each trained for a number of steps."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from p3s.config.presets import PRESETS
from p3s.config.toml_lines import KeyPath, Positions
from p3s.envs import EnvName
from p3s.errors import UserError, unknown

STEPS = 1_000_000
SEEDS = 5
"""Defaults: the paper's steps and number of seeds (Section 4.1)."""


@dataclass(frozen=True)
class Environment:
    """An environment of a study; `written` is its name as the file writes it."""

    written: str
    name: EnvName
    label: str
    group: str | None
    at: KeyPath
    steps: int | None = None
    """Environment steps of its runs; they count where they are fewer than the study's."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of all its runs; they win over the method's."""


@dataclass(frozen=True)
class Method:
    """A scheme, an algorithm and their fields, with the place in the file of each value."""

    label: str
    scheme: str
    algorithm: str | None
    """None: the one that suits the environment."""
    preset: str
    fields: dict[str, Any]
    at: KeyPath
    origins: dict[str, KeyPath]
    suits: str | None = None
    """The algorithm in the label, where neither is given."""

    @property
    def has_own_preset(self) -> bool:
        """Whether the preset is not the study's: it is a field, or on a grid."""
        return self.origins.get("preset", ("preset",)) != ("preset",)


@dataclass(frozen=True)
class Study:
    """The definition of a study, with the text it was read from."""

    file: str
    text: str
    name: str
    title: str
    steps: int
    seeds: tuple[int, ...]
    environments: tuple[Environment, ...]
    methods: tuple[Method, ...]
    paper: dict[tuple[str, str], float] = field(default_factory=dict)
    """Published scores by method label and environment label."""
    preset: str | None = None
    """The preset given in place of the file's, if any."""

    def steps_on(self, env: Environment) -> int:
        """Environment steps of every run on an environment."""
        return self.steps if env.steps is None else min(env.steps, self.steps)

    @property
    def num_cells(self) -> int:
        """The number of runs in the study."""
        return len(self.methods) * len(self.environments) * len(self.seeds)

    def problem(self, path: KeyPath, message: str, word: str | None = None) -> UserError:
        """An error that names the file and the line of a key, or of a word in its value."""
        return UserError(f"{self.place(path, word)}: {message}")

    def place(self, path: KeyPath, word: str | None = None) -> str:
        """The file and the line of a key, or of a word in its value."""
        return f"{self.file}:{self._positions.line(path, word)}"

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self.text)

    def with_budget(self, steps: int | None, seeds: int | None) -> Study:
        """The same study with another number of steps or seeds."""
        for name, value in (("steps", steps), ("seeds", seeds)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        chosen = self.seeds
        if seeds is not None and seeds <= len(self.seeds):
            chosen = self.seeds[:seeds]
        elif seeds is not None:
            if self.seeds != tuple(range(len(self.seeds))):
                most = f"at most {len(self.seeds)}, the number of seeds listed in {self.file}"
                raise UserError(f"seeds must be {most}, not {seeds}")
            chosen = tuple(range(seeds))
        return dataclasses.replace(self, steps=steps or self.steps, seeds=chosen)

    def with_preset(self, preset: str | None) -> Study:
        """The same study with another preset; methods that name their own keep it."""
        if preset is None:
            return self
        if preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        methods = tuple(
            method if method.has_own_preset else dataclasses.replace(method, preset=preset)
            for method in self.methods
        )
        if all(method.has_own_preset for method in methods):
            raise UserError(
                f"every method in {self.file} names its own preset: --preset would have no effect"
            )
        return dataclasses.replace(self, preset=preset, methods=methods)

    def resolved_text(self) -> str:
        """The text with the name, steps, seeds and preset in force; comments are kept."""
        counted = self.seeds == tuple(range(len(self.seeds)))
        values = {
            "name": f'"{self.name}"',
            "steps": str(self.steps),
            "seeds": str(len(self.seeds) if counted else list(self.seeds)),
        }
        if self.preset is not None:
            values["preset"] = f'"{self.preset}"'
        positions, lines, new = Positions(self.text), self.text.split("\n"), []
        for key, value in values.items():
            span = positions.span((key,))
            if span is None:
                new.append(f"{key} = {value}")
            else:
                lines[span[0] - 1 : span[1]] = [f"{key} = {value}"] + [""] * (span[1] - span[0])
        return "\n".join(new + lines)


def slug(label: str) -> str:
    """A label in a form that suits file names."""
    return re.sub(r"[^a-z0-9._-]+", "-", label.lower().replace("=", "-")).strip("-") or "-"
