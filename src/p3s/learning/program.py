"""The compiled programs of a run: a scheme's start, acting and learning, on this machine's devices.

Whether an update includes a policy step is static, so there are two programs for learning. What
an update leaves as it was stays out of its way (`Update`): the guide, which only the chief changes,
and, in an update without a policy step, the policies. So acting need not wait for such an update.
Runs of the same scheme in one process share their programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s import keys
from p3s.experience.normalization import Scaling, normalise_batches
from p3s.learning.learners import learner_mesh, place
from p3s.schemes import Scheme
from p3s.types import EnvSpec, Metrics

Unpack = Callable[[EnvSpec, Any], Any]
"""Makes what a scheme learns from of the rows that `learn` is given."""

CPU_OPTIONS = {
    # Parameters are overwritten after their last use: see that, instead of copying them first.
    "xla_cpu_copy_insertion_use_region_analysis": True,
    # Eigen's products are faster than YNNPACK's at the sizes of these networks.
    "xla_cpu_experimental_ynn_fusion_type": "",
}


@lru_cache(maxsize=1)
def compiler_options() -> dict[str, Any]:
    """Those of the options for this machine that its version of the compiler knows."""
    if jax.default_backend() != "cpu":
        return {}

    def known(name: str, value: Any) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in CPU_OPTIONS.items() if known(name, value)}


class Update:
    """A compiled update, which is given the state and gives back what of it has changed.

    What it changes is donated to it: the new values are written over the old ones.
    """

    def __init__(self, learn: Callable[..., Any], state: Any, *inputs: Any) -> None:
        traced, (_, metrics) = jax.make_jaxpr(learn, return_shape=True)(state, *inputs)
        self.metric_names = tuple(metrics)
        structure = jax.tree.structure(state)
        pairs = zip(traced.jaxpr.invars, traced.jaxpr.outvars, strict=False)
        self._moves = [before is not after for before, after in pairs][: structure.num_leaves]

        def move(moving: list[Any], still: list[Any], *inputs: Any) -> tuple[list[Any], jax.Array]:
            state, metrics = learn(structure.unflatten(self._merge(moving, still)), *inputs)
            moved, _ = self._split(jax.tree.leaves(state))
            return moved, jnp.stack(list(metrics.values()))

        self.compiled: Any = jax.jit(move, donate_argnums=0, compiler_options=compiler_options())

    def __call__(self, state: Any, *inputs: Any) -> tuple[Any, jax.Array]:
        """The new state, and metrics as (metrics, learners)."""
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
        self.updates: dict[bool, Update] = {}

        def learn(
            with_policy: bool, state: Any, rows: Any, scaling: Scaling | None, key: Any, update: Any
        ) -> tuple[Any, Metrics]:
            batches = normalise_batches(unpack(spec, rows), scaling)
            return scheme.learn(state, batches, jax.random.fold_in(key, update), with_policy)

        self._learn = learn

    def learn(self, with_policy: bool, *inputs: Any) -> tuple[Any, jax.Array]:
        """One update, compiled when it is first asked for."""
        if with_policy not in self.updates:
            self.updates[with_policy] = Update(partial(self._learn, with_policy), *inputs)
        return self.updates[with_policy](*inputs)


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
        return self._compiled.learn(
            with_policy, state, rows, scaling, self._learn_key, np.int32(update)
        )

    def metric_names(self, with_policy: bool) -> tuple[str, ...]:
        """What the rows of an update's metrics are called."""
        return self._compiled.updates[with_policy].metric_names

    @property
    def num_compiled(self) -> tuple[int, int]:
        """How many programs for learning and for acting were compiled."""
        updates = self._compiled.updates.values()
        learning = sum(update.compiled._cache_size() for update in updates)
        return learning, self._compiled.act._cache_size()
