"""Gymnasium's functional environments: 'func:phys2d/Pendulum-v0', or any object of its `FuncEnv`.

Gymnasium's own wrapper steps them one at a time, outside compiled programs. Here they are pure
functions again; the time limit is the one that they are registered with.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from gymnasium.experimental.functional import FuncEnv

from p3s.envs.functional import Outcome
from p3s.errors import UserError, in_words, unknown
from p3s.types import Array


class GymnasiumFunctional:
    """A `FuncEnv` as a `FunctionalEnv`."""

    def __init__(self, env: FuncEnv[Any, Any, Any, Any, Any, Any, Any], step_limit: int | None):
        self._env, self.step_limit = env, step_limit
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata: dict[str, Any] = {}

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """A first state, and what is seen of it."""
        first, seen = jax.random.split(key)
        state = self._env.initial(first)
        return state, self._env.observation(state, seen)

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step; a `FuncEnv` has no time limit of its own."""
        moved, seen, paid, over = jax.random.split(key, 4)
        after = self._env.transition(state, action, moved)
        return Outcome(
            after,
            self._env.observation(after, seen),
            self._env.reward(state, action, after, paid),
            self._env.terminal(after, over),
            jnp.zeros((), bool),
        )

    def render(self, state: Any) -> Any:
        """A picture of a state."""
        canvas = self._env.render_init()
        try:
            return self._env.render_image(state, canvas)[1]
        finally:
            self._env.render_close(canvas)


def make_functional(name: str, **arguments: Any) -> GymnasiumFunctional:
    """The `FuncEnv` behind one of Gymnasium's ids, with its time limit."""
    try:
        made = gymnasium.make(name, disable_env_checker=True, **arguments)
    except ModuleNotFoundError as error:
        if error.name != "flax":
            raise
        raise UserError(f"func:{name} needs flax: pip install 'p3s[func]'") from error
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
        raise unknown("functional environment", f"func:{name}", functional_ids()) from error
    except gymnasium.error.Error as error:
        raise UserError(f"environment 'func:{name}' cannot be made: {in_words(error)}") from error
    env, spec = getattr(made.unwrapped, "func_env", None), made.spec
    made.close()
    if not isinstance(env, FuncEnv):
        raise UserError(
            f"{name} is not a functional environment: leave func: out, or choose one of "
            f"{', '.join(functional_ids())}"
        )
    functional = GymnasiumFunctional(env, None if spec is None else spec.max_episode_steps)
    functional.metadata = made.metadata
    return functional


def functional_ids() -> list[str]:
    """The functional environments that Gymnasium registers, with their prefix."""
    spaces = "phys2d", "tabular"
    known = gymnasium.registry.values()
    return sorted(f"func:{spec.id}" for spec in known if spec.namespace in spaces)
