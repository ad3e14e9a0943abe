"""One environment in every style that is recognized: its observation is the number of its step.

The classes have the interfaces of Gymnasium's `FuncEnv`, of Brax 0.14, and of gymnax 1.0 and 0.0.9,
whose signatures are compared with the packages where those are installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

LENGTH = 3


class FuncStyle:
    """The methods of a `FuncEnv`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, terminates: bool = False):
        self.terminates, self.step_limit = terminates, None if terminates else LENGTH

    def initial(self, rng, params=None):
        return jnp.zeros((), jnp.int32)

    def transition(self, state, action, rng, params=None):
        return state + 1

    def observation(self, state, rng, params=None):
        return state[None].astype(jnp.float32)

    def reward(self, state, action, next_state, rng, params=None):
        return next_state

    def terminal(self, state, rng, params=None):
        return self.terminates & (state >= LENGTH)


@partial(jax.tree_util.register_dataclass, data_fields=["pipeline_state", "obs", "reward", "done",
         "metrics", "info"], meta_fields=[])  # fmt: skip
@dataclass
class BraxState:
    """The fields of Brax's `State`."""

    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


class BraxStyle:
    """Brax's interface. It writes to its state's dictionary, as many of Playground's do."""

    action_size, observation_size, episode_length = 2, 1, LENGTH

    def __init__(self, terminates: bool = False, truncates: bool = False, names: Any = None):
        self.terminates, self.truncates, self.names = terminates, truncates, names
        if terminates or truncates:
            self.episode_length = 1000

    def _seen(self, count):
        seen = count.astype(jnp.float32)[None]
        return seen if self.names is None else dict.fromkeys(self.names, seen)

    def reset(self, rng):
        steps = jnp.zeros(rng.shape[:-1], jnp.int32)  # as Brax's wrappers: keys are two numbers
        info = {"rng": rng, "steps": steps}
        if self.truncates:
            info["truncation"] = jnp.zeros(())
        return BraxState(steps, self._seen(steps), 0.0, jnp.zeros(()), {}, info)

    def step(self, state, action):
        count = state.pipeline_state + 1
        over = (count >= LENGTH).astype(jnp.float32)
        state.info["steps"] = count
        if self.truncates:
            state.info["truncation"] = over
        done = over if self.terminates or self.truncates else jnp.zeros(())
        reward = count.astype(jnp.float32)
        return replace(state, pipeline_state=count, obs=self._seen(count), reward=reward, done=done)


class GymnaxBox(NamedTuple):
    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any


class GymnaxDiscrete(NamedTuple):
    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32


class GymnaxSpaces:
    def __init__(self, parts: Any):
        self.spaces = parts


class GymnaxState(NamedTuple):
    time: Any


@dataclass(frozen=True)
class GymnaxParams:
    push: float = 1.0
    max_steps_in_episode: int = LENGTH


class OldGymnaxStyle:
    """gymnax's interface before 1.0: `done` is a time limit as well, and `step` resets."""

    actions: Any = GymnaxBox(-1.0, np.ones(2), (2,), jnp.float32)

    def __init__(self, terminates: bool = False):
        self.terminates = terminates

    @property
    def default_params(self):
        return GymnaxParams(max_steps_in_episode=1000 if self.terminates else LENGTH)

    def action_space(self, params=None):
        return self.actions

    def observation_space(self, params):
        return GymnaxBox(-jnp.ones(1), jnp.ones(1), (1,), jnp.float32)

    def is_terminal(self, state, params):
        return self.terminates & (state.time >= LENGTH) | (
            state.time >= params.max_steps_in_episode
        )

    def reset_env(self, key, params):
        return jnp.zeros(1), GymnaxState(0)

    def step_env(self, key, state, action, params):
        after = GymnaxState(state.time + 1)
        seen = jnp.asarray(after.time, jnp.float32)
        return seen[None], after, seen, self.is_terminal(after, params), {}

    def reset(self, key, params=None):
        return self.reset_env(key, self.default_params if params is None else params)

    def step(self, key, state, action, params=None):
        params = self.default_params if params is None else params
        seen, after, reward, done, info = self.step_env(key, state, action, params)
        first, start = self.reset_env(key, params)
        kept = jax.tree.map(partial(jnp.where, done), start, after)
        return jnp.where(done, first, seen), kept, reward, done, info


class GymnaxStyle(OldGymnaxStyle):
    """gymnax's interface since 1.0: the time limit apart, and the true final observation."""

    def is_terminal(self, state, params):
        return self.terminates & (state.time >= LENGTH)

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def step(self, key, state, action, params=None):
        params = self.default_params if params is None else params
        seen, after, reward, terminated, info = self.step_env(key, state, action, params)
        truncated = self.is_truncated(after, params)
        first, start = self.reset_env(key, params)
        kept = jax.tree.map(partial(jnp.where, terminated | truncated), start, after)
        shown = jnp.where(terminated | truncated, first, seen)
        return shown, kept, reward, terminated, truncated, {**info, "final_observation": seen}


class GymnaxWrapper:
    """A wrapper as gymnax has them: what it does not define itself, it hands on from inside."""

    def __init__(self, env: Any):
        self._env = env

    def __getattr__(self, name: str):
        return getattr(self._env, name)

    def reset(self, key, params=None):
        seen, state = self._env.reset(key, params)
        return -seen, state

    def step(self, key, state, action, params=None):
        seen, *rest = self._env.step(key, state, action, params)
        if "final_observation" in rest[-1]:
            rest[-1] = {**rest[-1], "final_observation": -rest[-1]["final_observation"]}
        return -seen, *rest
