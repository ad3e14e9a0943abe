"""Environments that are programs themselves: pure functions of arrays, compiled with learning.

    state, observation = env.reset(key)
    state, observation, reward, terminated, truncated = env.step(state, action, key)

One copy, without a memory of its own: everything that a step needs is in its state, a pytree of
arrays. It never resets itself; p3s does, so that the true final observation is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import gymnasium
import jax

from p3s.types import Array


class Outcome(NamedTuple):
    """What a step gives."""

    state: Any
    observation: Array
    reward: Array
    terminated: Array
    """Whether the episode ended by what happened in it: nothing is to be had any more."""
    truncated: Array
    """Whether a time limit of the environment's own ended it. p3s adds `step_limit`."""


class FunctionalEnv(Protocol):
    """An environment as pure functions; actions are those of its own space."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    step_limit: int | None
    """Steps after which p3s truncates an episode; None if the environment ends it itself."""

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """The state at the start of an episode, and what is seen of it."""
        ...

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step from this state."""
        ...
