"""What a study is: methods × environments × seeds, each for so many steps."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from p3s.envs import EnvName
from p3s.errors import UserError
from p3s.study.toml_lines import Path as KeyPath
from p3s.study.toml_lines import Positions

STEPS = 1_000_000
SEEDS = 5
"""The paper's budget and replication (Section 4.1), where a file says nothing."""


@dataclass(frozen=True)
class Environment:
    """An environment of a study; `written` is how the file calls it."""

    written: str
    name: EnvName
    label: str
    group: str | None
    at: KeyPath
    steps: int | None = None
    """Environment steps of its runs, where these are fewer than the study's."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of all its runs."""


@dataclass(frozen=True)
class Method:
    """One way to learn, with its place in the file and that of each of its values."""

    label: str
    scheme: str
    algorithm: str
    preset: str
    fields: dict[str, Any]
    at: KeyPath
    origins: dict[str, KeyPath]


@dataclass(frozen=True)
class Study:
    """A study's definition, with the text that it was read from."""

    file: str
    text: str
    name: str
    title: str
    steps: int
    seeds: tuple[int, ...]
    environments: tuple[Environment, ...]
    methods: tuple[Method, ...]
    paper: dict[tuple[str, str], float] = field(default_factory=dict)
    """The paper's scores by method and environment label."""

    def steps_on(self, env: Environment) -> int:
        """Environment steps of every run on this environment."""
        return self.steps if env.steps is None else min(env.steps, self.steps)

    @property
    def num_cells(self) -> int:
        """Runs of the study."""
        return len(self.methods) * len(self.environments) * len(self.seeds)

    def problem(self, path: KeyPath, message: str, word: str | None = None) -> UserError:
        """An error at a place of the file."""
        return UserError(f"{self.file}:{Positions(self.text).line(path, word)}: {message}")

    def with_budget(self, steps: int | None, seeds: int | None) -> Study:
        """The same study with other steps and another number of seeds."""
        for name, value in (("steps", steps), ("seeds", seeds)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        chosen = self.seeds
        if seeds is not None and seeds <= len(self.seeds):
            chosen = self.seeds[:seeds]
        elif seeds is not None:
            if self.seeds != tuple(range(len(self.seeds))):
                raise UserError(f"{self.file} lists {len(self.seeds)} seeds, fewer than {seeds}")
            chosen = tuple(range(seeds))
        return dataclasses.replace(self, steps=steps or self.steps, seeds=chosen)

    def resolved_text(self) -> str:
        """The file with name, steps and seeds in force, comments and all."""
        counted = self.seeds == tuple(range(len(self.seeds)))
        values = {
            "name": f'"{self.name}"',
            "steps": str(self.steps),
            "seeds": str(len(self.seeds) if counted else list(self.seeds)),
        }
        positions, lines, new = Positions(self.text), self.text.split("\n"), []
        for key, value in values.items():
            span = positions.span((key,))
            if span is None:
                new.append(f"{key} = {value}")
            else:
                lines[span[0] - 1 : span[1]] = [f"{key} = {value}"] + [""] * (span[1] - span[0])
        return "\n".join(new + lines)


def slug(label: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"[^a-z0-9._-]+", "-", label.lower().replace("=", "-")).strip("-") or "-"
