"""Environments with Brax's interface: Brax, MuJoCo Playground, and objects like theirs.

    state = env.reset(rng)                   a State: obs, reward, done, info and the simulation
    state = env.step(state, action)          actions in [-1, 1], env.action_size of them

They are used bare. Brax's own wrappers give an episode's end the observation of the next start,
which a truncated transition must not store: p3s resets and limits itself. `done` is a termination,
unless `info["truncation"]` says that a time limit of the environment's own caused it. Randomness is
in the state, so the key of a step is not used.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s.envs.functional import Outcome
from p3s.envs.functional_checks import Checked
from p3s.envs.prefixes import imported
from p3s.errors import UserError, unknown
from p3s.types import Array

STEP_LIMIT = 1000
"""Of an episode where the environment says none: Brax's own trainings have it."""


class BraxEnvironment:
    """An environment with Brax's interface, to be checked."""

    observation_space = None  # Brax's does not say its type: the first observation does

    def __init__(self, env: Any, step_limit: int | None = None) -> None:
        self._env = env
        own = getattr(env, "episode_length", STEP_LIMIT)
        self.step_limit = own if step_limit is None else step_limit
        self.action_space = spaces.Box(-1.0, 1.0, (int(env.action_size),), np.float32)
        step_time = getattr(env, "dt", None)
        self.metadata = (
            {} if step_time is None else {"render_fps": max(1, round(1 / float(step_time)))}
        )
        if hasattr(env, "render"):
            self.render = self._render

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """A first state, and what is seen of it."""
        # Environments of this kind know keys as two numbers, and some look at their shape.
        state = self._env.reset(jax.random.key_data(key))
        if any(str(name).endswith("first_obs") for name in _info(state)):
            raise UserError(
                f"{type(self._env).__name__} resets itself, and the last observation of an "
                "episode is lost: make the environment without it (auto_reset=False)"
            )
        return state, _seen(state)

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step."""
        state = self._env.step(state, action)
        done = jnp.asarray(state.done, bool)
        truncated = jnp.asarray(_info(state).get("truncation", False), bool) & done
        return Outcome(state, _seen(state), state.reward, done & ~truncated, truncated)

    def _render(self, state: Any) -> Any:
        """A picture of a state."""
        return self._env.render(getattr(state, "pipeline_state", state))


def _info(state: Any) -> Mapping[str, Any]:
    return getattr(state, "info", None) or {}


def _seen(state: Any) -> Any:
    """What the policy sees: of a dictionary that has it `state`, as in Playground's own agents.

    What else is there is for critics ("privileged_state"). Without it all parts are put together.
    """
    seen = state.obs
    if not isinstance(seen, Mapping):
        return seen
    if "state" in seen:
        return seen["state"]
    return jnp.concatenate([jnp.ravel(part) for part in jax.tree.leaves(seen)])


def make_brax(name: str, max_episode_steps: int | None = None, **arguments: Any) -> Checked:
    """One of Brax's environments; arguments: of its class, such as backend."""
    known_as = f"brax:{name}"
    with _without_notices():
        envs = imported(known_as, "brax.envs")
    known: Mapping[str, Any] = getattr(envs, "_envs", {})
    if known and name not in known:
        raise unknown("brax environment", name, known)
    with _without_notices():
        made = envs.get_environment(name, **arguments)
    return Checked(BraxEnvironment(made, max_episode_steps), known_as)


def make_playground(name: str, max_episode_steps: int | None = None, **overrides: Any) -> Checked:
    """One of MuJoCo Playground's environments; overrides: of its config, such as sim_dt."""
    known_as = f"playground:{name}"
    with _without_notices():
        registry = imported(known_as, "mujoco_playground").registry
    if name not in registry.ALL_ENVS:
        raise unknown("playground environment", name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    if "impl" in config:
        # Its default, warp, is for NVIDIA's cards and no program of jax.
        overrides = {"impl": "jax", **overrides}
    made = registry.load(name, config=config, config_overrides=overrides)
    limit = config.episode_length if max_episode_steps is None else max_episode_steps
    return Checked(BraxEnvironment(made, limit), known_as)


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Leave out what is printed of a missing warp, and that Brax is not maintained: docs say so."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        yield
