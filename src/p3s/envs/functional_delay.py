"""Delayed rewards inside a program: what `DelayedReward` (delay.py) does, for a functional one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from p3s.envs.delay import Delay, checked_delay
from p3s.envs.functional import FunctionalEnv, Outcome
from p3s.types import Array


class FunctionalDelay:
    """Pay the accumulated reward every `delay` steps, or only at the end of the episode."""

    def __init__(self, env: FunctionalEnv, delay: Delay) -> None:
        self._env, self._delay = env, checked_delay(delay)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.step_limit = env.step_limit
        self.metadata: dict[str, Any] = getattr(env, "metadata", {})
        if hasattr(env, "render"):
            self.render = lambda state: env.render(state[0])  # type: ignore[reportAttributeAccessIssue]

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """The start of an episode, with nothing saved up."""
        state, observation = self._env.reset(key)
        return (state, jnp.zeros(()), jnp.zeros((), jnp.int32)), observation

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step, with the reward that is due."""
        own, saved, steps = state
        outcome = Outcome(*self._env.step(own, action, key))
        saved, steps = saved + outcome.reward, steps + 1
        due = outcome.terminated | outcome.truncated
        if self.step_limit is not None:
            due |= steps >= self.step_limit
        if isinstance(self._delay, int):
            due |= steps % self._delay == 0
        paid = jnp.where(due, saved, 0.0)
        return outcome._replace(state=(outcome.state, saved - paid, steps), reward=paid)


_delayed: dict[tuple[int, Delay], FunctionalDelay] = {}


def delayed(env: FunctionalEnv, delay: Delay) -> FunctionalDelay:
    """The environment with delayed rewards; the same object again, so that it compiles once."""
    known = id(env), checked_delay(delay)
    if known not in _delayed:
        _delayed[known] = FunctionalDelay(env, delay)  # it keeps the environment, and so its id
    return _delayed[known]
