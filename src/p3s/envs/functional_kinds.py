"""Which objects are functional environments: one's own and those of packages, by what they have."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium

from p3s.envs.functional import FunctionalEnv
from p3s.envs.functional_brax import BraxEnvironment
from p3s.envs.functional_checks import Checked
from p3s.envs.functional_gymnasium import GymnasiumFunctional
from p3s.envs.functional_gymnax import GymnaxEnvironment
from p3s.errors import UserError

FUNC_ENV = "initial", "transition", "observation", "reward", "terminal"
"""What Gymnasium's `FuncEnv` is known by."""


def as_functional(thing: Any, name: str | None = None) -> FunctionalEnv | None:
    """An object as a functional environment, checked; None if it is nothing of the kind.

    name: what messages call it.
    """
    if isinstance(thing, Checked | gymnasium.Env) or hasattr(thing, "num_envs"):
        return thing if isinstance(thing, Checked) else None
    name = name or type(thing).__name__
    adapted = _adapted(thing, name)
    return None if adapted is None else Checked(adapted, name, own=adapted is thing)


def _adapted(thing: Any, name: str) -> Any:
    if isinstance(thing, tuple):  # as gymnax.make gives it
        parts: tuple[Any, ...] = thing
        return GymnaxEnvironment(*parts) if len(parts) == 2 and _is_gymnax(parts[0]) else None
    if all(hasattr(thing, method) for method in FUNC_ENV):
        return GymnasiumFunctional(thing, getattr(thing, "step_limit", None))
    if not callable(getattr(thing, "reset", None)) or not callable(getattr(thing, "step", None)):
        return None
    if _is_gymnax(thing):
        return GymnaxEnvironment(thing, thing.default_params)
    if hasattr(thing, "action_size"):
        return BraxEnvironment(thing)
    if not _takes(thing.step, 3):
        return None  # step(action): an environment with a memory of its own
    _check_own(thing, name)
    return thing


def _is_gymnax(thing: Any) -> bool:
    return hasattr(thing, "default_params") and hasattr(thing, "step")


def _takes(method: Any, count: int) -> bool:
    """Whether a method can be called with this many arguments in order."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    return True


def _check_own(thing: Any, name: str) -> None:
    """Refuse an object with `reset` and `step` that lacks the rest of `FunctionalEnv`."""
    for space in ("observation_space", "action_space"):
        found = getattr(thing, space, None)
        if not isinstance(found, gymnasium.Space):
            what = f"is a {type(found).__name__}" if hasattr(thing, space) else "is missing"
            raise UserError(f"{space} of {name} {what}: it must be one of gymnasium.spaces")
    if not hasattr(thing, "step_limit"):
        raise UserError(
            f"step_limit of {name} is missing: the steps after which an episode is truncated, "
            "or None if it always ends by itself"
        )
