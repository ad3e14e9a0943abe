"""`p3s presets`: what `p3s train ENV` takes for each environment that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

import gymnasium
import tyro
from rich.table import Table

from p3s.cli.console import table_console
from p3s.cli.envs import newest_versions
from p3s.config.environments import ENVIRONMENTS, EnvironmentPreset
from p3s.envs import parse_name
from p3s.errors import UserError


@dataclass(frozen=True)
class Options:
    """List what p3s train takes for each environment if nothing else is said."""

    pattern: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[WORD]")] = ""
    """Only environments that contain this, or groups: mujoco, box2d, classic."""


def run(options: Options) -> int:
    """Print the table."""
    table = Table("environment", "algorithm", "steps", "fields", "solved at", "source", box=None)
    word, ids = options.pattern.lower(), known_ids()
    for family, preset in ENVIRONMENTS.items():
        name = ids.get(family, family)
        if word in name.lower() or word in preset.group.lower():
            cells = (preset.algorithm, f"{preset.steps:,}", fields_text(preset), solved_at(name))
            table.add_row(name, *cells, preset.source)
    if not table.row_count:
        near = get_close_matches(options.pattern, ids.values(), n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "any other takes td3's or dqn's"
        raise UserError(f"no environment with presets has {options.pattern!r} in its name: {hint}")
    table_console().print(table)
    return 0


def known_ids() -> dict[str, str]:
    """The newest Gymnasium id of each family."""
    plain = [name for name in newest_versions() if "/" not in name]
    return {parse_name(name).family: name for name in plain}


def fields_text(preset: EnvironmentPreset) -> str:
    """The values that differ from the algorithm's defaults, as options of p3s train."""
    ahead = preset.discount_factor
    fields = {**({} if ahead is None else {"discount_factor": ahead}), **preset.fields}
    words = []
    for name, value in fields.items():
        values = " ".join(map(str, value)) if isinstance(value, tuple) else value
        words.append(f"--{name.replace('_', '-')} {values}")
    return " ".join(words) or "-"


def solved_at(name: str) -> str:
    """The mean return at which Gymnasium calls a task solved, if it says so."""
    spec = gymnasium.registry.get(name)
    threshold = None if spec is None else spec.reward_threshold
    return "-" if threshold is None else f"{threshold:g}"
