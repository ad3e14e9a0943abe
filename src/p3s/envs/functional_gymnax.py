"""Environments with gymnax's interface: gymnax, and objects like its own.

    observation, state = env.reset_env(key, params)
    observation, state, reward, done, info = env.step_env(key, state, action, params)

`step` of these resets by itself; `step_env` does not, and is used where the object has it. Since
gymnax 1.0 `done` is a termination and `is_truncated` tells of the time limit. Before, `done` was
both: then the time limit in the parameters is put out of reach, and p3s truncates there instead.

Objects that have only `step`, wrappers among them, return six values since gymnax 1.0 and have the
true final observation in `info`, or five: then `done` is a termination, whose final observation no
target needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s.envs.functional import Outcome
from p3s.envs.functional_checks import Checked
from p3s.envs.prefixes import imported
from p3s.errors import UserError, unknown
from p3s.types import Array

LIMITS = "max_steps_in_episode", "max_timesteps"
"""Parameters that are time limits: gymnax's, Craftax's."""
NEVER = 1 << 30


class GymnaxEnvironment:
    """An environment with gymnax's interface and its parameters, to be checked."""

    def __init__(self, env: Any, params: Any, step_limit: int | None = None) -> None:
        self._env, self.step_limit = env, step_limit
        # What a wrapper merely hands on from inside would bypass it.
        self._bare = hasattr(type(env), "step_env") and hasattr(type(env), "reset_env")
        self._reset, self._step = (
            (env.reset_env, env.step_env) if self._bare else (env.reset, env.step)
        )
        self._truncates = hasattr(env, "is_truncated")
        limit = _limit(params)
        if limit is not None and step_limit is not None:
            params = _replaced(params, {limit: step_limit})
        if limit is not None and not self._truncates:
            self.step_limit = int(getattr(params, limit))
            params = _replaced(params, {limit: NEVER})
        self._params = params
        self.action_space = as_gymnasium(env.action_space(params))
        own = as_gymnasium(env.observation_space(params))
        self._num_seen = int(own.n) if isinstance(own, spaces.Discrete) else None
        # What it says of its boxes is often not what it shows.
        self.observation_space = None

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """A first state, and what is seen of it."""
        observation, state = self._reset(jax.random.key_data(key), self._params)
        return state, self._seen(observation)

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step."""
        values = self._step(jax.random.key_data(key), state, action, self._params)
        observation, after, reward, terminated = values[:4]
        truncated: Any = False
        if len(values) == 6:
            truncated = values[4]
            observation = values[5].get("final_observation", observation)
        elif self._bare and self._truncates:
            truncated = self._env.is_truncated(after, self._params)
        return Outcome(after, self._seen(observation), reward, terminated, truncated)

    def _seen(self, observation: Any) -> Any:
        """An observation; a number of a place becomes a vector that is 1 there."""
        if self._num_seen is None:
            return observation
        return jax.nn.one_hot(jnp.reshape(observation, ()), self._num_seen)


def _limit(params: Any) -> str | None:
    return next((name for name in LIMITS if hasattr(params, name)), None)


def _replaced(params: Any, values: Mapping[str, Any]) -> Any:
    """Parameters with other values, of the types that they had."""
    typed = {
        name: type(getattr(params, name))(value)
        if isinstance(getattr(params, name), bool | int | float)
        else value
        for name, value in values.items()
    }
    replace = getattr(params, "_replace", None) or partial(dataclasses.replace, params)
    return replace(**typed)


def as_gymnasium(space: Any) -> gymnasium.Space[Any]:
    """A space of gymnax's kind, which is known by its attributes, as one of Gymnasium's."""
    if isinstance(space, gymnasium.Space):
        return space
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "low") and hasattr(space, "high"):
        dtype = np.dtype(space.dtype)
        low, high = (
            np.broadcast_to(np.asarray(bound, dtype), space.shape)
            for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, tuple(space.shape), dtype.type)
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return spaces.Dict({name: as_gymnasium(part) for name, part in parts.items()})
    if isinstance(parts, tuple | list):
        return spaces.Tuple([as_gymnasium(part) for part in parts])
    raise UserError(f"a {type(space).__name__} is no space that p3s knows")


def make_gymnax(name: str, max_episode_steps: int | None = None, **arguments: Any) -> Checked:
    """One of gymnax's environments; arguments: of its class, or of its parameters."""
    known_as = f"gymnax:{name}"
    gymnax = imported(known_as, "gymnax")
    if name not in gymnax.registered_envs:
        raise unknown("gymnax environment", name, gymnax.registered_envs)
    _, defaults = gymnax.make(name)
    fields = {field.name for field in dataclasses.fields(defaults)}
    given = {key: value for key, value in arguments.items() if key not in fields}
    env, params = gymnax.make(name, **given)
    params = _replaced(params, {key: arguments[key] for key in arguments.keys() & fields})
    return Checked(GymnaxEnvironment(env, params, max_episode_steps), known_as)
