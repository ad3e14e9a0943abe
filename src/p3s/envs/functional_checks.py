"""What a functional environment has to keep to, found by tracing it once; nothing is compiled yet.

States are arrays and keep their structure, shapes and types; observations are those of their space;
a reward is one number. What a training would trip over later, or learn nonsense from, is one line
here.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.core import Tracer

import p3s
from p3s.envs.functional import Outcome
from p3s.errors import UserError
from p3s.types import Array

_INSIDE = tuple(str(Path(module.__file__ or "").parent) for module in (jax, np, p3s))
"""Where an error is raised that somebody else's line caused."""


class Checked:
    """A functional environment whose states and observations have the same types at every step.

    name: what messages call it. own: whether it is somebody's own, which is traced a second time.
    An environment that says no `observation_space` gets that of its first observation.
    """

    def __init__(self, env: Any, name: str, own: bool = False) -> None:
        self._env, self._name = env, name
        self.step_limit: int | None = env.step_limit
        self.metadata: dict[str, Any] = getattr(env, "metadata", {})
        if hasattr(env, "render"):
            self.render = env.render
        limit = self.step_limit
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise UserError(f"step_limit of {name} must be at least 1, or None: {limit!r}")
        self.action_space: gymnasium.Space[Any] = env.action_space
        state, observation = self._traced("reset", self._reset, jax.random.key(0))
        space: gymnasium.Space[Any] | None = env.observation_space
        self.observation_space = space_of(observation) if space is None else space
        self._traced("reset", self._seen, observation)
        if isinstance(self.action_space, spaces.Box | spaces.Discrete):
            self._check_step(state, observation)
            if own:
                self._check_pure(state)

    def reset(self, key: jax.Array) -> tuple[Any, Array]:
        """The state at the start of an episode, and what is seen of it."""
        state, observation = self._reset(key)
        return state, self._seen(observation)

    def step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        """One step from this state."""
        outcome = self._step(state, action, key)
        return outcome._replace(observation=self._seen(outcome.observation))

    def _reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, observation = self._values(self._env.reset(key), "reset", "state, observation")
        return self._arrays(state, "state"), self._arrays(observation, "observation")

    def _step(self, state: Any, action: Array, key: jax.Array) -> Outcome:
        # Some environments write to the dictionaries in their state; the caller's must stay.
        own = jax.tree.map(lambda leaf: leaf, state)
        names = ", ".join(Outcome._fields)
        after, observation, *rest = self._values(self._env.step(own, action, key), "step", names)
        kinds = ("reward", jnp.float32), ("terminated", bool), ("truncated", bool)
        numbers = [self._number(value, *kind) for value, kind in zip(rest, kinds, strict=True)]
        after, observation = self._arrays(after, "state"), self._arrays(observation, "observation")
        return Outcome(after, observation, *numbers)

    def _values(self, values: Any, method: str, names: str) -> tuple[Any, ...]:
        """What a method returned, if it is as much as it should be."""
        if isinstance(values, tuple) and len(values) == names.count(",") + 1:
            return values
        given = (
            f"{len(values)} values" if isinstance(values, tuple) else f"a {type(values).__name__}"
        )
        raise UserError(f"{method} of {self._name} returns {given}, not {names}")

    def _arrays(self, tree: Any, what: str) -> Any:
        """A tree as arrays. Plain numbers in it get the types that they would have after a step."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        made = list[Any]()
        for path, leaf in leaves:
            try:
                made.append(_array(leaf))
            except TypeError as error:
                part = jax.tree_util.keystr(path)
                raise UserError(
                    f"the {what} of {self._name} is not made of arrays: "
                    f"{what}{part} is a {type(leaf).__name__}"
                ) from error
        return structure.unflatten(made)

    def _number(self, value: Any, what: str, dtype: Any) -> Array:
        array = self._arrays(value, what)
        if not hasattr(array, "size") or array.size != 1:
            shape = getattr(array, "shape", type(array).__name__)
            raise UserError(f"{what} of {self._name} is not one number: it is {shape}")
        return array.reshape(()).astype(dtype)

    def _seen(self, observation: Any) -> Any:
        """An observation with the types of its space."""
        return self._in_space(self.observation_space, observation, "observation")

    def _in_space(self, space: gymnasium.Space[Any], value: Any, what: str) -> Any:
        if isinstance(space, spaces.Dict):
            if not isinstance(value, Mapping) or set(value) != set(space.spaces):
                raise UserError(f"{what} of {self._name} does not have the names of its space")
            own = space.spaces.items()
            return {name: self._in_space(s, value[name], f"{what}[{name!r}]") for name, s in own}
        if isinstance(space, spaces.Tuple):
            if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
                raise UserError(f"{what} of {self._name} does not have the parts of its space")
            own = zip(space.spaces, value, strict=True)
            return tuple(self._in_space(s, v, f"{what}[{i}]") for i, (s, v) in enumerate(own))
        if space.shape is None or space.dtype is None:
            return value  # a space that no network reads: the adapter says so
        found = f"{what} of {self._name} has", getattr(value, "shape", type(value).__name__)
        if found[1] != space.shape:
            raise UserError(f"{found[0]} shape {found[1]}, its space {space.shape}")
        if space.dtype.kind in "iu" and value.dtype.kind not in "biu":
            raise UserError(f"{found[0]} numbers of type {value.dtype}, its space {space.dtype}")
        return _as_type(value, space.dtype)

    def _check_step(self, state: Any, observation: Any) -> None:
        """Refuse a step that cannot be traced, or that changes a type."""
        outcome = self._traced("step", self._step, state, self._an_action(), jax.random.key(0))
        self._check_same("state", state, outcome.state)
        self._check_same("observation", observation, outcome.observation)

    def _an_action(self) -> jax.ShapeDtypeStruct:
        dtype = np.dtype(np.int32 if self.action_space.shape == () else self.action_space.dtype)
        return jax.ShapeDtypeStruct(self.action_space.shape or (), dtype)

    def _check_pure(self, state: Any) -> None:
        """Refuse methods that are other programs when they are traced again."""
        calls: dict[str, tuple[Any, ...]] = {
            "reset": (self._reset, jax.random.key(0)),
            "step": (self._step, state, self._an_action(), jax.random.key(0)),
        }
        programs = [
            [self._traced(method, *call, by=_program) for method, call in calls.items()]
            for _ in range(2)
        ]
        for method, first, again in zip(calls, *programs, strict=True):
            if first != again:
                raise UserError(
                    f"{method} of {self._name} is another program each time it is traced: random "
                    "numbers have to come from its key, and what an episode remembers has to be "
                    "in its state"
                )

    def _check_same(self, what: str, first: Any, later: Any) -> None:
        ours, theirs = (
            {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
            for leaves, _ in map(jax.tree_util.tree_flatten_with_path, (first, later))
        )
        for part in [*ours, *theirs]:
            before, after = (_described(tree.get(part)) for tree in (ours, theirs))
            if before != after:
                raise UserError(
                    f"{what}{part} of {self._name} changes its type: "
                    f"{before} after a reset, {after} after a step"
                )
        if jax.tree.structure(first) != jax.tree.structure(later):
            raise UserError(f"the {what} of {self._name} changes its structure in a step")

    def _traced(
        self, method: str, function: Callable[..., Any], *arguments: Any, by: Any = jax.eval_shape
    ) -> Any:
        try:
            return by(function, *arguments)
        except UserError:
            raise
        except jax.errors.UnexpectedTracerError as error:
            raise UserError(
                f"{method} of {self._name} uses what an earlier call has left in an attribute: "
                "what an episode remembers has to be in its state"
            ) from error
        except Exception as error:
            cause = first_cause(error)
            raise UserError(f"{method} of {self._name} cannot be compiled: {cause}") from error


def _program(function: Callable[..., Any], *arguments: Any) -> tuple[str, list[bytes]]:
    """What a function is compiled from, and the constants in it."""
    # Not the function itself: what was traced of it is kept.
    made = jax.make_jaxpr(lambda *given: function(*given))(*arguments)
    if any(isinstance(value, Tracer) for value in made.consts):
        raise jax.errors.UnexpectedTracerError("left by an earlier call")
    constants = [np.asarray(_numbers(value)).tobytes() for value in made.consts]
    return re.sub("0x[0-9a-f]+", "", str(made.jaxpr)), constants


def _numbers(value: Any) -> Any:
    keys = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(value) if keys else value


def space_of(observation: Any) -> gymnasium.Space[Any]:
    """The space of what an environment shows: uint8 may be an image, all else becomes float32."""
    if isinstance(observation, Mapping):
        return spaces.Dict({name: space_of(part) for name, part in observation.items()})
    if observation.dtype == np.uint8:
        return spaces.Box(0, 255, observation.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, observation.shape, np.float32)


def first_cause(error: Exception) -> str:
    """An exception from tracing in one line, with the line of the environment that caused it."""
    kind, text = type(error).__name__, str(error).partition("\n")[0]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_INSIDE, "<"))
    ]
    if not frames:
        return f"{kind}: {text}"
    return f"{kind} at {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line} ({text})"


def _array(leaf: Any) -> Any:
    """A leaf as an array of a definite type; TypeError if it is none."""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
        raise TypeError(type(leaf))
    return _as_type(leaf, jnp.result_type(leaf))


def _as_type(value: Any, dtype: Any) -> jax.Array:
    # An explicit type, so that it does not depend on what the value is combined with.
    return jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))


def _described(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
