"""A list of environments that can be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import gymnasium
import tyro
from gymnasium.envs.registration import EnvSpec
from rich.table import Table

from p3s.cli.console import table_console
from p3s.envs import make_env
from p3s.errors import UserError


def list_environments(pattern: str) -> None:
    """Print the newest version of every registered environment that can be made here."""
    table = Table("environment", "observation", "action", box=None)
    for env_id in newest_versions():
        if pattern.lower() not in env_id.lower():
            continue
        try:
            env = make_env(env_id)
        except UserError:
            continue
        spec = env.env_spec
        env.close()
        action = f"{spec.action_size} discrete" if spec.discrete else f"{spec.action_size}"
        table.add_row(env_id, str(spec.observation_size), action)
    if not table.row_count:
        raise UserError(f"no environment here has {pattern!r} in its name")
    table_console().print(table)


def newest_versions() -> list[str]:
    """The ids of Gymnasium's registry, only the newest version of each name."""
    newest: dict[tuple[str | None, str], EnvSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace in ("phys2d", "tabular"):
            continue
        name = (spec.namespace, spec.name)
        if name not in newest or (spec.version or 0) > (newest[name].version or 0):
            newest[name] = spec
    return sorted(spec.id for spec in newest.values())


@dataclass(frozen=True)
class Options:
    """List environments that can be trained on, with their sizes."""

    pattern: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[WORD]")] = ""
    """Only ids that contain this."""


def run(options: Options) -> int:
    """Print the table."""
    list_environments(options.pattern)
    return 0
