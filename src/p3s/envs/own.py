"""Environments by what makes them: a callable, or its name as 'module:make'.

It may make a `gymnasium.Env` or anything that functional_kinds.py recognizes. A functional one has
no memory, so it is made once in a process: its copies are one object, and it compiles once.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium

from p3s.envs.packages import missing_module
from p3s.errors import UserError, in_words, unknown

if TYPE_CHECKING:
    from p3s.envs.functional import FunctionalEnv

_made: dict[Any, FunctionalEnv] = {}


def made_by_callable(make: Callable[[], Any]) -> gymnasium.Env:
    """What a callable makes, as an environment of Gymnasium."""
    known = make if getattr(make, "__hash__", None) is not None else None
    return _environment(make, known, "the callable", None, None)


def made_by_name(
    env_id: str, arguments: dict[str, Any], render_mode: str | None
) -> gymnasium.Env | None:
    """What 'module:make' makes of the arguments; None if that is an id of Gymnasium's."""
    module, _, attribute = env_id.partition(":")
    if not attribute.isidentifier():
        return None
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_module(env_id, error) from error
    except Exception as error:
        raise UserError(f"environment {env_id!r} cannot be made: {in_words(error)}") from error
    if attribute in gymnasium.registry:
        return None
    make = getattr(imported, attribute, None)
    if hasattr(make, "reset") and not callable(make):
        raise UserError(f"{env_id} is one environment: name the class or function that makes it")
    if not callable(make):
        own = [name for name, value in vars(imported).items() if _could_make(value, module)]
        raise unknown("environment", env_id, [f"{module}:{name}" for name in own])
    drawn = render_mode is not None and _takes_render_mode(make)
    given = {**arguments, "render_mode": render_mode} if drawn else arguments
    known = env_id, json.dumps(arguments, sort_keys=True, default=repr)
    try:
        return _environment(lambda: make(**given), known, env_id, env_id, render_mode)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"environment {env_id!r} cannot be made: {in_words(error)}") from error


def _environment(
    make: Callable[[], Any], known: Any, maker: str, name: str | None, render_mode: str | None
) -> gymnasium.Env:
    """One more environment, wrapped if it is functional."""
    made: Any = _made.get(known) if known is not None else None
    if made is None:
        made = make()
    if isinstance(made, gymnasium.Env):
        if render_mode is not None and made.render_mode != render_mode:
            raise UserError(f"{name} cannot be drawn: it does not take render_mode={render_mode!r}")
        return made
    from p3s.envs.functional_kinds import as_functional
    from p3s.envs.on_host import OnHost

    functional = as_functional(made, name)
    if functional is None:
        what = f"a gymnasium.Env or a functional environment, not {type(made).__name__}"
        raise UserError(f"{maker} has to make {what}{_what_it_lacks(made)}")
    if known is not None:
        _made[known] = functional
    return OnHost(functional, name or type(made).__name__, render_mode)


def _what_it_lacks(made: Any) -> str:
    """What keeps an object from being an environment, for the end of a line."""
    if hasattr(made, "num_envs"):
        return ": one environment, not a vector of them"
    if hasattr(made, "reset") and hasattr(made, "step"):
        return ": reset(key) and step(state, action, key) make one"
    return ""


def _takes_render_mode(make: Callable[..., Any]) -> bool:
    try:
        return "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


def _could_make(value: Any, module: str) -> bool:
    """Whether something of a module is likely to be what makes its environments."""
    return callable(value) and getattr(value, "__module__", None) == module
