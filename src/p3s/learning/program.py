"""The compiled programs of a run: a scheme's start, acting and learning, on this machine's devices.

Whether an update includes a policy step is static, so a stretch of updates is compiled for its
pattern, such as (value only, with policy). Leaves that a stretch does not change bypass it
(`Stretch`): the guide, which only the chief changes, and, in value updates, what is trained of the
policies. So acting need not wait for a value update, unless running statistics move in it (`xqc`).
Runs of the same scheme in one process share programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from p3s import keys
from p3s.experience import Batches
from p3s.experience.normalization import Scaling, normalize_batches
from p3s.learning.devices import compiler_options, learner_mesh, library_for, place
from p3s.schemes import Scheme
from p3s.trees import pick
from p3s.types import EnvSpec, Recorded

Unpack = Callable[[EnvSpec, Any], Any]
"""Makes what a scheme learns from out of the rows that `learn` is given."""
Pattern = tuple[bool, ...]
"""For each update of a stretch, whether it includes a policy step."""


def repeated_unit(pattern: Pattern) -> Pattern:
    """The shortest pattern that, repeated, is this one."""
    lengths = (n for n in range(1, len(pattern) + 1) if len(pattern) % n == 0)
    return next(pattern[:n] for n in lengths if pattern[:n] * (len(pattern) // n) == pattern)


class Stretch:
    """A compiled stretch of updates: takes the state and returns what of it has changed.

    What it changes is donated to it: the new values are written over the old ones. A pattern
    that repeats is compiled once and looped over.
    """

    def __init__(
        self,
        learn: Callable[..., Any],
        options: dict[str, Any],
        pattern: Pattern,
        state: Any,
        *inputs: Any,
    ) -> None:
        unit = repeated_unit(pattern)
        repeats = len(pattern) // len(unit)
        self.metric_names: list[tuple[str, ...]] = []

        def learn_unit(
            state: Any, rows: jax.Array, scaling: Scaling | None, key: jax.Array, first: jax.Array
        ) -> tuple[Any, list[jax.Array]]:
            found, names = [], []
            for index, with_policy in enumerate(unit):
                state, metrics = learn(with_policy, state, rows[index], scaling, key, first + index)
                found.append(jnp.stack(list(metrics.values())))
                names.append(tuple(metrics))
            self.metric_names = names
            return state, found

        rows, scaling, key, first = inputs
        traced = jax.make_jaxpr(learn_unit)(state, rows[: len(unit)], scaling, key, first)
        # Traced once: what is compiled below calls the result.
        learn_traced, structure = jaxpr_as_fun(traced), jax.tree.structure(state)
        pairs = zip(traced.jaxpr.invars, traced.jaxpr.outvars, strict=False)
        self._moves = [before is not after for before, after in pairs][: structure.num_leaves]

        def move(
            moving: list[Any],
            still: list[Any],
            rows: jax.Array,
            scaling: Scaling | None,
            key: jax.Array,
            first: jax.Array,
        ) -> tuple[list[Any], list[jax.Array]]:
            def once(moving: list[Any], step: Any) -> tuple[list[Any], list[jax.Array]]:
                own_rows, number = step
                inputs = jax.tree.leaves((own_rows, scaling, key, number))
                found = learn_traced(*self._merge(moving, still), *inputs)
                leaves, metrics = found[: len(self._moves)], found[len(self._moves) :]
                return self._split(leaves)[0], metrics

            if repeats == 1:
                moved, metrics = once(moving, (rows, first))
                return moved, [values[None] for values in metrics]
            rows = rows.reshape(repeats, len(unit), *rows.shape[1:])
            numbers = first + len(unit) * jnp.arange(repeats, dtype=jnp.int32)
            return jax.lax.scan(once, moving, (rows, numbers))

        self.compiled: Any = jax.jit(move, donate_argnums=0, compiler_options=options)

    def __call__(self, state: Any, *inputs: Any) -> tuple[Any, list[jax.Array]]:
        """The new state; for each update of the unit its metrics, (repeats, metrics, learners)."""
        leaves, structure = jax.tree.flatten(state)
        moving, still = self._split(leaves)
        moved, metrics = self.compiled(moving, still, *inputs)
        return structure.unflatten(self._merge(moved, still)), metrics

    def _split(self, leaves: list[Any]) -> tuple[list[Any], list[Any]]:
        pairs = list(zip(leaves, self._moves, strict=True))
        return [leaf for leaf, moves in pairs if moves], [
            leaf for leaf, moves in pairs if not moves
        ]

    def _merge(self, moving: list[Any], still: list[Any]) -> list[Any]:
        parts = {True: iter(moving), False: iter(still)}
        return [next(parts[moves]) for moves in self._moves]


class Compiled:
    """The jitted functions of a scheme."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, unpack: Unpack) -> None:
        self.init = jax.jit(lambda key: scheme.init(key, spec))
        self.act: Any = jax.jit(scheme.act)
        self.end_episodes: Any = jax.jit(scheme.end_episodes)
        self.stretches: dict[tuple[Pattern, Any, bool], Stretch] = {}
        self.metric_names: dict[Pattern, list[tuple[str, ...]]] = {}
        self._options = compiler_options(library_for(scheme.algorithm))

        def learn(
            with_policy: bool, state: Any, rows: Any, scaling: Scaling | None, key: Any, update: Any
        ) -> tuple[Any, Recorded]:
            batches = normalize_batches(unpack(spec, rows), scaling)
            return scheme.learn(state, batches, jax.random.fold_in(key, update), with_policy)

        self._learn = learn

    def learn(self, pattern: Pattern, *inputs: Any) -> tuple[Any, list[jax.Array]]:
        """A stretch of updates, compiled when it is first asked for with rows of this shape."""
        _, rows, scaling, *_ = inputs
        name = pattern, rows.shape, scaling is None
        if name not in self.stretches:
            self.stretches[name] = Stretch(self._learn, self._options, pattern, *inputs)
            self.metric_names[pattern] = self.stretches[name].metric_names
        return self.stretches[name](*inputs)


compiled = lru_cache(maxsize=4)(Compiled)


class Program:
    """A scheme's programs, with the random streams of a run.

    part: the learners that are trained here, if not all of them.
    """

    def __init__(
        self,
        scheme: Scheme,
        spec: EnvSpec,
        seed: int,
        unpack: Unpack,
        num_devices: int | None = None,
        part: range | None = None,
    ) -> None:
        self._scheme, self._part = scheme, part
        self._compiled = compiled(scheme, spec, unpack)
        num_learners = scheme.num_trained if part is None else len(part)
        self.mesh = learner_mesh(num_learners, num_devices)
        self._init_key, self.learn_key, self.act_key = (
            keys.key(seed, name) for name in ("init", "learn", "act")
        )

    def start(self) -> Any:
        """The scheme's state at the start of a run."""
        state = self._compiled.init(self._init_key)
        if self._part is not None:
            own = slice(self._part.start, self._part.stop)
            stacked = {name: getattr(state, name) for name in self._scheme.stacked}
            state = state._replace(**pick(stacked, own))
        return self.place(state)

    def place(self, state: Any) -> Any:
        """The state on its devices."""
        stacked = partial(place, mesh=self.mesh, stacked=True)
        whole = partial(place, mesh=self.mesh, stacked=False)
        return type(state)(
            **{
                name: (stacked if name in self._scheme.stacked else whole)(value)
                for name, value in state._asdict().items()
            }
        )

    def act(self, state: Any, observations: np.ndarray, step: int) -> jax.Array:
        """An exploring action in every environment copy, without waiting for them."""
        acting = self._scheme.acting(state)
        return self._compiled.act(acting, observations, self.act_key, np.int32(step))

    def end_episodes(self, state: Any, ended: np.ndarray) -> Any:
        """The state after the episodes of some learners ended, (learners,)."""
        return self._compiled.end_episodes(state, ended)

    def learn(
        self, state: Any, batches: list[Batches], first: int, pattern: Pattern
    ) -> tuple[Any, list[jax.Array]]:
        """A stretch of updates, one for each of the batches, without waiting for them.

        first: the number of its first update. The new state; and for each update of the pattern's
        unit its metrics, (repeats, metrics, learners).
        """
        rows = batches[0].rows[None] if len(batches) == 1 else np.stack([b.rows for b in batches])
        return self._compiled.learn(
            pattern, state, rows, batches[0].scaling, self.learn_key, np.int32(first)
        )

    def metric_names(self, pattern: Pattern) -> list[tuple[str, ...]]:
        """Names of the metrics, for each update of the pattern's unit."""
        return self._compiled.metric_names[pattern]

    @property
    def num_compiled(self) -> tuple[int, int]:
        """How many programs for learning and for acting were compiled."""
        stretches = self._compiled.stretches.values()
        learning = sum(stretch.compiled._cache_size() for stretch in stretches)
        return learning, self._compiled.act._cache_size()
