"""Small functional environments, for tests of what lives on a device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s.envs.functional import Outcome
from p3s.envs.on_host import OnHost


class StepNumber:
    """Its observation is the number of its own step; every step pays that number."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, length: int = 3, ends: str = "limit"):
        self.length, self.ends = length, ends
        self.step_limit = length if ends == "limit" else None

    def reset(self, key: jax.Array):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key: jax.Array) -> Outcome:
        after = state + 1
        seen = after.astype(jnp.float32)
        over = after >= self.length
        return Outcome(
            after, seen[None], seen, over & (self.ends == "terminated"),
            over & (self.ends == "truncated"),
        )  # fmt: skip


class ThreeEnds:
    """Its episodes end in one of three ways, which a second number of the observation tells."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    step_limit = 4

    def reset(self, key: jax.Array):
        way = jax.random.randint(key, (), 0, 3)
        return (jnp.zeros((), jnp.int32), way), jnp.stack([0, way]).astype(jnp.float32)

    def step(self, state, action, key: jax.Array) -> Outcome:
        after, way = state[0] + 1, state[1]
        seen, over = jnp.stack([after, way]).astype(jnp.float32), after >= 3
        return Outcome((after, way), seen, seen[0], over & (way == 1), over & (way == 2))


class PointMass:
    """A mass on a line that is pushed to the middle, with noise; starts and noise are random."""

    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, step_limit: int = 20, edge: float = 2.5):
        self.step_limit, self.edge = step_limit, edge

    def reset(self, key: jax.Array):
        state = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return {"at": state, "noise": jax.random.fold_in(key, 7)}, state

    def step(self, state, action, key: jax.Array) -> Outcome:
        place, speed = state["at"]
        speed = 0.9 * speed + 0.2 * action[0] + 0.05 * jax.random.normal(key)
        place = place + 0.2 * speed
        seen = jnp.stack([place, speed])
        out = jnp.abs(place) > self.edge
        after = {"at": seen, "noise": state["noise"]}
        return Outcome(after, seen, -(place**2), out, jnp.zeros((), bool))


class Switch:
    """One of two lamps is lit; pressing its button pays."""

    action_space = spaces.Discrete(2, start=1)
    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    step_limit = 8

    def reset(self, key: jax.Array):
        lit = jax.random.randint(key, (), 0, 2)
        return lit, jax.nn.one_hot(lit, 2)

    def step(self, state, action, key: jax.Array) -> Outcome:
        lit = jax.random.randint(key, (), 0, 2)
        paid = (action - 1 == state).astype(jnp.float32)
        return Outcome(lit, jax.nn.one_hot(lit, 2), paid, jnp.zeros((), bool), jnp.zeros((), bool))


STEP_NUMBERS = {ends: StepNumber(3, ends) for ends in ("limit", "terminated", "truncated")}
MASS, SWITCH = PointMass(), Switch()


def point_mass() -> OnHost:
    """One copy of the one mass, so that programs compile once."""
    return OnHost(MASS, "point mass")


def switch() -> OnHost:
    return OnHost(SWITCH, "switch")
