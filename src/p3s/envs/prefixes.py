"""Names of functional environments: a prefix says of what kind, as in 'func:phys2d/Pendulum-v0'.

A kind is one line in PREFIXES. Its function takes the rest of the name and the environment's
arguments, and gives a `FunctionalEnv` (functional.py). It is imported when it is asked for, so
names cost no import of jax.
"""

from __future__ import annotations

import importlib
import json
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from p3s.errors import UserError, in_words

if TYPE_CHECKING:
    from p3s.envs.functional import FunctionalEnv


class Prefix(NamedTuple):
    """A kind of functional environments."""

    path: str
    """What makes one of them by name: 'module:function'."""
    example: str
    """A name with the prefix."""
    what: str
    """What they are, in a few words."""
    module: str
    """What has to be installed."""
    install: str
    """What installs it, after `pip install`."""

    @property
    def is_installed(self) -> bool:
        """Whether the module can be found."""
        return find_spec(self.module) is not None


PREFIXES = {
    "func": Prefix(
        "p3s.envs.functional_gymnasium:make_functional",
        "func:phys2d/Pendulum-v0",
        "Gymnasium in JAX",
        "flax",
        "'p3s[func]'",
    ),
    "brax": Prefix("p3s.envs.functional_brax:make_brax", "brax:ant", "Brax", "brax", "'p3s[brax]'"),
    "playground": Prefix(
        "p3s.envs.functional_brax:make_playground",
        "playground:CartpoleSwingup",
        "MuJoCo Playground",
        "mujoco_playground",
        "'p3s[playground]'",
    ),
    # gymnax 1.0.1 asks for an older gymnasium than p3s, whose spaces it only translates to.
    "gymnax": Prefix(
        "p3s.envs.functional_gymnax:make_gymnax",
        "gymnax:Pendulum-v1",
        "gymnax",
        "gymnax",
        "flax matplotlib seaborn six && pip install --no-deps gymnax",
    ),
}

_made: dict[tuple[str, str], FunctionalEnv] = {}


def has_prefix(env_id: str) -> bool:
    """Whether a name is that of a functional environment."""
    return env_id.partition(":")[0] in PREFIXES


def not_a_prefix(env_id: str) -> str:
    """What to say of a name that begins with no module and no prefix, for the end of a line."""
    given, _, name = env_id.partition(":")
    listed = [
        prefix if kind.is_installed else f"{prefix} (not installed)"
        for prefix, kind in PREFIXES.items()
    ]
    near = get_close_matches(given, PREFIXES, n=1)
    hint = f": did you mean {near[0]}:{name}?" if near else ""
    return f"nor one of the prefixes {', '.join(listed)}{hint}"


def imported(env_id: str, module: str) -> Any:
    """A module of the package that this name's prefix needs; UserError if it is not installed."""
    prefix = env_id.partition(":")[0]
    needs = f"{env_id} needs {prefix}"
    if not PREFIXES[prefix].is_installed:
        raise UserError(f"{needs}: pip install {PREFIXES[prefix].install}")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{needs}, which cannot be imported: {error}") from error


def make_named(env_id: str, arguments: dict[str, Any]) -> FunctionalEnv:
    """The functional environment of a name with a prefix.

    It has no state, so all copies in a process are one object, and its programs compile once.
    """
    known = env_id, json.dumps(arguments, sort_keys=True, default=repr)
    if known not in _made:
        _made[known] = _make(env_id, arguments)
    return _made[known]


def _make(env_id: str, arguments: dict[str, Any]) -> FunctionalEnv:
    prefix, _, name = env_id.partition(":")
    module, _, function = PREFIXES[prefix].path.partition(":")
    make = getattr(importlib.import_module(module), function)
    try:
        return make(name, **arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"environment {env_id!r} cannot be made: {in_words(error)}") from error
