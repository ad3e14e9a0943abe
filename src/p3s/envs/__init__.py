"""Gymnasium environments as the learners see them: [-1, 1] actions, flat float32 observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from p3s.envs.adapter import Adapter, describe, with_masks, with_spec_check, with_stacking
from p3s.envs.delay import Delay, DelayedReward
from p3s.envs.masks import offers_masks
from p3s.envs.mujoco_setup import warn_once
from p3s.envs.names import EnvName, parse_name, register
from p3s.envs.own import made_by_callable, made_by_name
from p3s.envs.packages import missing_module, unknown_environment
from p3s.envs.prefixes import has_prefix, make_named
from p3s.envs.wrapping import wrapped
from p3s.errors import UserError, in_words
from p3s.registry import search_current_folder

if TYPE_CHECKING:
    from p3s.envs.functional import FunctionalEnv

EnvSource = str | Callable[[], Any]
"""An id, or a callable that makes a `gymnasium.Env` or a functional environment."""

register()


def make_env(
    env: EnvSource | EnvName, delay: Delay | None = None, render_mode: str | None = None
) -> Adapter:
    """An environment from an id ("Hopper-v5", "module:Env-v0", "Delayed Ant-v1") or a callable.

    A prefix names a functional environment: "func:phys2d/Pendulum-v0", "brax:ant". What a callable
    of your own makes may be functional too; "module:make" names it.

    delay: steps between two payments of reward, or "end" to pay at the end of the episode.
    """
    warn_once()
    if isinstance(env, str):
        env = parse_name(env, delay)
    if isinstance(env, EnvName):
        made, delay = _make_named(env, render_mode), env.delay
        for wrapper in env.wrappers:
            made = wrapped(made, wrapper)
    elif isinstance(env, gymnasium.Env):
        raise UserError("give a callable that makes the environment: every learner has its own")
    elif not callable(env):
        raise UserError(
            f"give the environment's id or a callable that makes one copy, not a "
            f"{type(env).__name__}: p3s steps the copies of its learners itself"
        )
    else:
        made = made_by_callable(env)
    if delay is not None:
        made = _delayed(made, delay)
    return Adapter(made)


def functional_of(env: gymnasium.Env) -> FunctionalEnv | None:
    """The functional environment that this is one copy of; None for a wrapper and all others."""
    return vars(env).get("functional")


def why_on_host(env: Adapter) -> str | None:
    """Why copies of a functional environment have to be stepped one by one; None if they need not.

    An environment that is not functional has no reason either.
    """
    if functional_of(env.unwrapped) is None:
        return None
    if functional_of(env.env) is None:
        return f"it is wrapped in {type(env.env).__name__}"
    if env.shows_more:
        return "more than its latest observation is shown"
    own = env.env.observation_space
    if not isinstance(own, gymnasium.spaces.Box):
        return f"its observations are a {type(own).__name__}"
    if own.dtype == np.uint8 and not env.env_spec.observation.is_image:
        return "its observations are bytes"
    return None


def _delayed(env: gymnasium.Env, delay: Delay) -> gymnasium.Env:
    """The environment with delayed rewards; a functional one stays functional."""
    functional = functional_of(env)
    if functional is None:
        return DelayedReward(env, delay)
    from p3s.envs.functional_delay import delayed
    from p3s.envs.on_host import OnHost

    return OnHost(delayed(functional, delay), describe(env), env.render_mode)


def _make_named(name: EnvName, render_mode: str | None) -> gymnasium.Env:
    if has_prefix(name.id):
        from p3s.envs.on_host import OnHost

        return OnHost(make_named(name.id, name.kwargs), name.id, render_mode)
    if ":" in name.id:
        search_current_folder()
        if (own := made_by_name(name.id, name.kwargs, render_mode)) is not None:
            return own
    options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    try:
        return gymnasium.make(name.id, disable_env_checker=True, **options, **name.kwargs)
    except (ModuleNotFoundError, gymnasium.error.DependencyNotInstalled) as error:
        raise missing_module(name.id, error) from error
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
        raise unknown_environment(name.id) from error
    except Exception as error:
        what = in_words(error)
        raise UserError(f"environment {name.id!r} cannot be made: {what}") from error


__all__ = [
    "Adapter",
    "Delay",
    "DelayedReward",
    "EnvName",
    "EnvSource",
    "describe",
    "functional_of",
    "make_env",
    "offers_masks",
    "parse_name",
    "why_on_host",
    "with_masks",
    "with_spec_check",
    "with_stacking",
]
