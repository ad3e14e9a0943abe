"""What the contracts are checked on: an algorithm or a scheme in a small world.

What a case compiles is compiled once for all checks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.plugins.loading import find
from p3s.schemes import SCHEMES
from p3s.schemes.base import Scheme
from p3s.testing.programs import (
    SPECS,
    random_batch,
    stack,
)
from p3s.types import EnvSpec, Guide, Learner, Params

SIZES = (8, 8)
ROWS = 7
UPDATES_OF_RUN = 1000


REVIEWS = 4
"""Of a scheme, one after another."""
SCHEME_SIZES = (4,)
SMALL = {"num_learners": 4, "initial_steps": 3, "review_period": 5}


def small_algorithm(algorithm: str | type[Algorithm], **fields: Any) -> Algorithm:
    """An algorithm with small networks and minibatches, but for fields that are given."""
    made = find(ALGORITHMS, "algorithm", algorithm) if isinstance(algorithm, str) else algorithm
    known = {field.name for field in dataclasses.fields(made)}
    small: dict[str, Any] = {"hidden_sizes": SIZES, "batch_size": ROWS}
    values = {name: value for name, value in small.items() if name in known}
    return made(**{**values, **fields}).for_run(UPDATES_OF_RUN)


def small_scheme(
    scheme: str | type[Scheme], algorithm: str | type[Algorithm] = "td3", **fields: Any
) -> Scheme:
    """A scheme of few learners with a small algorithm; fields: of both."""
    made = find(SCHEMES, "scheme", scheme) if isinstance(scheme, str) else scheme
    own = {field.name for field in dataclasses.fields(made)}
    of_learner = {name: value for name, value in fields.items() if name not in own}
    learner = small_algorithm(algorithm, **{"hidden_sizes": SCHEME_SIZES, **of_learner})
    values = {name: value for name, value in {**SMALL, **fields}.items() if name in own}
    small = made(algorithm=learner, **values)
    if small.problem() is not None and "num_learners" not in fields:
        # Some have one learner and no more.
        values.pop("num_learners", None)
        small = made(algorithm=learner, **values)
    return small


class AlgorithmCase:
    """An algorithm on a small environment, and what is compiled of it once for all checks."""

    def __init__(self, algorithm: Algorithm, spec: EnvSpec) -> None:
        self.algorithm, self.spec, self.name = algorithm, spec, algorithm.name
        self.batch = random_batch(spec, 0, ROWS)
        self.init = jax.jit(partial(self.algorithm.init, spec=spec))

    @cached_property
    def learner(self) -> Learner:
        """At the start."""
        return self.init(jax.random.key(0))

    @cached_property
    def other(self) -> Learner:
        """Another learner at the start."""
        return self.init(jax.random.key(1))

    @cached_property
    def update(self) -> Callable[..., Any]:
        """Compiled: learner, batch, guide, key -> after the value step, after both, metrics."""

        def update(learner: Learner, batch: Any, guide: Guide, key: jax.Array) -> Any:
            value_key, policy_key = jax.random.split(key)
            valued, told = self.algorithm.value_step(learner, batch, value_key)
            after, more = self.algorithm.policy_step(valued, batch, guide, policy_key)
            return valued, after, told, more

        return jax.jit(update)

    @cached_property
    def updated(self) -> Any:
        """After one update with half a pull towards the other's policy."""
        return self.updated_with(self.other, 0.5)

    def updated_with(self, guide: Learner, weight: float) -> Any:
        """After one update with this pull towards this guide's policy."""
        pull = Guide(self.algorithm.policy_of(guide), jnp.float32(weight))
        return self.update(self.learner, self.batch, pull, jax.random.key(2))

    def policies(self) -> tuple[Params, Params]:
        """Two policies."""
        return self.algorithm.policy_of(self.learner), self.algorithm.policy_of(self.other)


def keys(count: int) -> jax.Array:
    """Keys to try, always the same."""
    return jax.random.split(jax.random.key(3), count)


class SchemeCase:
    """A scheme with a small algorithm, and what is compiled of it once for all checks."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme, self.name = scheme, scheme.name
        discrete = scheme.algorithm.actions == "discrete"
        self.spec: EnvSpec = SPECS["discrete" if discrete else "continuous"]
        self.init = jax.jit(partial(self.scheme.init, spec=self.spec))
        self.learn = jax.jit(self.scheme.learn, static_argnums=3)

    @cached_property
    def state(self) -> Any:
        """At the start."""
        return self.init(jax.random.key(0))

    @cached_property
    def learned(self) -> tuple[Any, dict[str, jax.Array]]:
        """After an update with a policy step; and its metrics."""
        return self.learn(self.state, self.batches(True), jax.random.key(1), True)

    def batches(self, with_policy: bool) -> Any:
        """As many minibatches as an update takes."""
        count = self.scheme.num_batches(with_policy)
        return stack([random_batch(self.spec, index, ROWS) for index in range(count)])

    def reviewed(self, state: Any, times: int = 1) -> tuple[Any, list[dict[str, Any]]]:
        """After reviews with returns of which each time another learner's are the highest."""
        rng, rows = np.random.default_rng(0), []
        for number in range(times):
            state = _moved_on(state, number)
            state, row = self.scheme.review(state, self.returns(number), self.observations, rng)
            rows.append(row)
        return state, rows

    def returns(self, number: int) -> np.ndarray:
        """Recent returns for a review, (acting policies, recent episodes); read-only."""
        shape = (self.scheme.num_envs // self.scheme.envs_per_learner, self.scheme.num_recent)
        returns = np.random.default_rng(number).normal(100.0 * number, 30.0, shape)
        returns.flags.writeable = False
        return returns

    @cached_property
    def observations(self) -> np.ndarray:
        """What a review measures policies on; read-only."""
        seen = np.array(random_batch(self.spec, 9, ROWS).observation)
        seen.flags.writeable = False
        return seen

    @property
    def learns(self) -> bool:
        """Whether it learns from minibatches of a replay."""
        return not self.scheme.algorithm.on_policy


def _moved_on(state: Any, number: int) -> Any:
    """A state as if its networks had learned something since the last review."""
    draw = np.random.default_rng(number)

    def move(path: Any, leaf: jax.Array) -> jax.Array:
        # An optimizer's second moments must stay positive.
        if leaf.dtype != np.float32 or leaf.ndim < 2 or "optimizer" in jax.tree_util.keystr(path):
            return leaf
        return leaf + 0.02 * draw.normal(size=leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(move, state)
