"""Many copies of a functional environment as one step of a program.

    now = begin(key, copies, 0)                     copy i: episode 0
    now, transition, ended = step(key, copies, now, actions)

Episode k of copy i has the key fold_in(fold_in(key, i), k), and its step t that with t folded in
(`on_host.py`). So copy i plays the same episodes in whatever group it lives. A copy whose episode
has ended begins the next one in the same step: the transition holds the true final observation, and
`discount` tells a termination from a truncation, which bootstraps.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s.envs.functional import FunctionalEnv
from p3s.envs.on_host import advance, begin
from p3s.types import Array, EnvSpec, Transition


class Copies(NamedTuple):
    """Where copies are now; every array has an axis for them."""

    state: Any
    observation: Array
    """As the learners see it."""
    steps: Array
    """Of the present episode, so far."""
    episode: Array
    """The number of the present episode."""


class Simulation:
    """The programs of an environment's copies, as the learners see it.

    Actions are in [-1, 1] or an index, observations flat float32 vectors or uint8 images.
    """

    def __init__(self, env: FunctionalEnv, spec: EnvSpec) -> None:
        self.env, self.spec = env, spec
        self.begin: Any = jax.jit(self.begun)
        self.step: Any = jax.jit(self.stepped)

    def begun(self, key: jax.Array, copies: Array, episode: Array) -> Copies:
        """These copies at the start of these episodes."""
        state, observation = jax.vmap(partial(begin, self.env))(_episode_keys(key, copies, episode))
        return Copies(state, self._seen(observation), jnp.zeros_like(episode), episode)

    def stepped(
        self,
        key: jax.Array,
        copies: Array,
        now: Copies,
        actions: Array,
        active: Array | None = None,
    ) -> tuple[Copies, Transition, Array]:
        """One step: where the copies are then, the transitions, and whose episodes ended.

        active: who steps; None for all. The others stay where they are.
        """
        steps = now.steps + 1
        own_keys = _episode_keys(key, copies, now.episode)
        own_actions = own_action(self.env.action_space, actions)
        outcome = jax.vmap(partial(advance, self.env))(now.state, own_actions, own_keys, steps)
        limit = self.env.step_limit
        truncated = outcome.truncated if limit is None else outcome.truncated | (steps >= limit)
        seen = self._seen(outcome.observation)
        reward = jnp.asarray(outcome.reward, jnp.float32)
        discount = 1.0 - jnp.asarray(outcome.terminated, jnp.float32)
        transition = Transition(now.observation, actions, reward, discount, seen)
        ended = jnp.broadcast_to(outcome.terminated | truncated, steps.shape)
        after = Copies(outcome.state, seen, steps, now.episode)
        if active is not None:
            after, ended = _where(active, after, now), ended & active
        # The condition is one for all copies, so a reset costs nothing while nobody ends.
        later = jax.lax.cond(
            ended.any(),
            lambda: _where(ended, self.begun(key, copies, after.episode + 1), after),
            lambda: after,
        )
        return later, transition, ended

    def _seen(self, observation: Array) -> Array:
        """Observations as the learners see them."""
        kind = self.spec.observation
        return observation.reshape(-1, *kind.shape).astype(kind.dtype)


def _episode_keys(key: jax.Array, copies: Array, episode: Array) -> jax.Array:
    own = jax.vmap(partial(jax.random.fold_in, key))(copies)
    return jax.vmap(jax.random.fold_in)(own, episode)


def _where(chosen: Array, ours: Any, theirs: Any) -> Any:
    """For each copy the one or the other; of the types that the other has."""

    def pick(one: Array, other: Array) -> Array:
        mask = chosen.reshape(-1, *[1] * (one.ndim - 1))
        return jnp.where(mask, one, other)

    return jax.tree.map(pick, ours, theirs)


def own_action(space: gymnasium.Space[Any], actions: Array) -> Array:
    """Actions of learners, (copies, ...), as those of the environment's own space."""
    if isinstance(space, spaces.Discrete):
        return actions.astype(jnp.int32) + int(space.start)
    assert isinstance(space, spaces.Box)
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    half, center = ((high - low) / 2).astype(np.float32), ((high + low) / 2).astype(np.float32)
    scaled = actions.reshape(-1, len(half)) * half + center
    scaled = jnp.clip(scaled, low.astype(np.float32), high.astype(np.float32))
    if np.issubdtype(space.dtype, np.integer):
        scaled = jnp.rint(scaled)
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    return scaled.astype(dtype).reshape(-1, *space.shape)


_simulations: dict[tuple[int, EnvSpec], Simulation] = {}


def simulation_of(env: FunctionalEnv, spec: EnvSpec) -> Simulation:
    """The programs of an environment, which all groups of its copies in a process share."""
    known = id(env), spec
    if known not in _simulations:
        _simulations[known] = Simulation(env, spec)  # it keeps the environment, and so its id
    return _simulations[known]
