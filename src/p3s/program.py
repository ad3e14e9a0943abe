"""The compiled programs of a run: a scheme's start, acting and learning, on this machine's devices.

Whether an update includes a policy step is static, so there are two programs for learning. The
parts of the state that learning changes are donated to it; those that only the chief changes
(`fixed`) are not carried through. Runs of the same scheme in one process share their programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s import keys
from p3s.learners import learner_mesh, place
from p3s.normalisation import Scaling, normalise_batches
from p3s.schemes import Scheme
from p3s.types import EnvSpec

Unpack = Callable[[EnvSpec, Any], Any]
"""Makes what a scheme learns from of the rows that `learn` is given."""


class Compiled:
    """The jitted functions of a scheme."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, unpack: Unpack) -> None:
        self.init = jax.jit(lambda key: scheme.init(key, spec))
        self.act: Any = jax.jit(scheme.act)
        self.metric_names: dict[bool, tuple[str, ...]] = {}
        state_type = type(jax.eval_shape(self.init, jax.random.key(0)))

        def learn(
            moving: Any,
            fixed: Any,
            rows: Any,
            scaling: Scaling | None,
            key: Any,
            update: Any,
            with_policy: bool,
        ) -> Any:
            batches = normalise_batches(unpack(spec, rows), scaling)
            state, metrics = scheme.learn(
                state_type(**moving, **fixed),
                batches,
                jax.random.fold_in(key, update),
                with_policy,
            )
            self.metric_names[with_policy] = tuple(metrics)
            moved = {name: getattr(state, name) for name in moving}
            return moved, jnp.stack(list(metrics.values()))

        self.learn: Any = jax.jit(learn, static_argnums=6, donate_argnums=0)


compiled = lru_cache(maxsize=4)(Compiled)


class Program:
    """A scheme's programs, with the random streams of a run."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, seed: int, unpack: Unpack) -> None:
        self._scheme = scheme
        self._compiled = compiled(scheme, spec, unpack)
        self._mesh = learner_mesh(scheme.num_trained)
        self._init_key, self._learn_key, self._act_key = (
            keys.key(seed, name) for name in ("init", "learn", "act")
        )

    def start(self) -> Any:
        """The scheme's state at the start of a run."""
        return self.place(self._compiled.init(self._init_key))

    def place(self, state: Any) -> Any:
        """The state on its devices."""
        stacked = partial(place, mesh=self._mesh, stacked=True)
        whole = partial(place, mesh=self._mesh, stacked=False)
        return type(state)(
            **{
                name: (stacked if name in self._scheme.stacked else whole)(value)
                for name, value in state._asdict().items()
            }
        )

    def act(self, state: Any, observations: np.ndarray, step: int) -> jax.Array:
        """An exploring action in every environment copy, without waiting for them."""
        acting = self._scheme.acting(state)
        return self._compiled.act(acting, observations, self._act_key, np.int32(step))

    def learn(
        self, state: Any, rows: np.ndarray, scaling: Scaling | None, update: int, with_policy: bool
    ) -> tuple[Any, jax.Array]:
        """One update: the new state, and metrics as (metrics, learners), without waiting for them.

        scaling: what observations are still to be normalised by.
        """
        moving = state._asdict()
        fixed = {name: moving.pop(name) for name in self._scheme.fixed}
        moved, metrics = self._compiled.learn(
            moving, fixed, rows, scaling, self._learn_key, np.int32(update), with_policy
        )
        return state._replace(**moved), metrics

    def metric_names(self, with_policy: bool) -> tuple[str, ...]:
        """What the rows of an update's metrics are called."""
        return self._compiled.metric_names[with_policy]

    @property
    def num_compiled(self) -> tuple[int, int]:
        """How many programs for learning and for acting were compiled."""
        return self._compiled.learn._cache_size(), self._compiled.act._cache_size()
