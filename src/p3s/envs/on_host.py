"""A functional environment as an ordinary Gymnasium environment, one step at a time.

So everything that plays on the host can play it: evaluations, films, wrappers, policies that are
tried by hand. Episodes are those of `reset(seed=...)`:

    key = jax.random.key(seed)
    reset with fold_in(key, 0), step t = 1, 2, ... with fold_in(key, t)

An environment may have a method `render(state)`, which gives a picture of a state.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

from p3s.envs.functional import FunctionalEnv, Outcome
from p3s.errors import UserError


class Programs(NamedTuple):
    """The compiled functions of an environment."""

    env: FunctionalEnv
    """Kept, so that no other object gets its id."""
    reset: Any
    step: Any


_programs: dict[int, Programs] = {}


def programs_of(env: FunctionalEnv) -> Programs:
    """The compiled functions of an environment, which all of its copies share."""
    if id(env) not in _programs:
        _programs[id(env)] = Programs(
            env, jax.jit(partial(begin, env)), jax.jit(partial(advance, env))
        )
    return _programs[id(env)]


def begin(env: FunctionalEnv, key: jax.Array) -> tuple[Any, Any]:
    """The start of the episode of this key."""
    return env.reset(jax.random.fold_in(key, 0))


def advance(env: FunctionalEnv, state: Any, action: Any, key: jax.Array, step: Any) -> Outcome:
    """Step 1, 2, ... of the episode of this key."""
    return Outcome(*env.step(state, action, jax.random.fold_in(key, step)))


class OnHost(gymnasium.Env):
    """One copy of a functional environment.

    name: what messages call it.
    """

    def __init__(
        self, functional: FunctionalEnv, name: str | None = None, render_mode: str | None = None
    ) -> None:
        self.functional = functional
        self.observation_space = functional.observation_space
        self.action_space = functional.action_space
        self.render_mode = render_mode
        fps = getattr(functional, "metadata", {}).get("render_fps", 30)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self.known_as = name or type(functional).__name__
        self._programs = programs_of(functional)
        self._key, self._state, self._steps = jax.random.key(0), None, 0
        if render_mode is not None:
            self._check_rendering(render_mode)

    def _check_rendering(self, mode: str) -> None:
        if not hasattr(self.functional, "render"):
            raise UserError(f"{self.known_as} cannot be drawn: it has no pictures of its states")
        if mode != "rgb_array":
            raise UserError(f"{self.known_as} has no window: give --video FILE")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(1 << 31))
        self._key, self._steps = jax.random.key(seed), 0
        self._state, observation = self._programs.reset(self._key)
        return self._shown(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        outcome = self._programs.step(self._state, action, self._key, np.int32(self._steps))
        self._state, observation, reward, terminated, truncated = outcome
        limit = self.functional.step_limit
        over = limit is not None and self._steps >= limit
        shown = self._shown(observation)
        return shown, float(reward), bool(terminated), bool(truncated) or over, {}

    def _shown(self, observation: Any) -> Any:
        """An observation as the environment's space has it."""
        space = self.observation_space
        if isinstance(space, gymnasium.spaces.Discrete):
            return int(observation)
        shown = jax.device_get(observation)
        return shown.astype(space.dtype) if isinstance(shown, np.ndarray) else shown

    def render(self) -> Any:
        if self.render_mode is None or self._state is None:
            return None
        return np.asarray(getattr(self.functional, "render")(self._state))  # noqa: B009

    # ------------------------------------------------------------------ for checkpoints

    def get_state(self) -> dict[str, Any]:
        """What the episode goes on from, as plain arrays."""
        leaves = [as_numbers(leaf) for leaf in jax.tree.leaves(self._state)]
        key = np.asarray(jax.random.key_data(self._key))
        return {"leaves": leaves, "key": key, "steps": self._steps}

    def set_state(self, values: dict[str, Any]) -> None:
        """Go on from there."""
        self._key = jax.random.wrap_key_data(values["key"])
        self._steps = int(values["steps"])
        example, _ = self._programs.reset(self._key)
        likes, structure = jax.tree.flatten(example)
        pairs = zip(values["leaves"], likes, strict=True)
        self._state = structure.unflatten([from_numbers(leaf, like) for leaf, like in pairs])


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_numbers(leaf: Any) -> np.ndarray:
    """A part of a state as numbers that a file can hold."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def from_numbers(array: np.ndarray, like: Any) -> Any:
    """The inverse, for a part of this kind."""
    if _is_key(like):
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=jax.random.key_impl(like))
    return jax.numpy.asarray(array, like.dtype)
