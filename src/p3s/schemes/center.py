"""Center (Appendix E): N policies pulled to a center policy that follows them.

    every step:  learner i minimizes L(phi_i) + beta D(pi_i, pi_c)
    every M own steps: one gradient step of the center on beta sum_i D(pi_i, pi_c)

Unlike in P3S every learner is pulled, beta is fixed, and the guide is trained, not chosen. The
center starts as learner 0 does and is evaluated with the learners (`center_returns`), without
counting for the score. Its optimizer, which the text does not name, is Adam. It never sees a
minibatch in training mode, so its carried leaves are those of learner 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from p3s.algorithms import Algorithm
from p3s.fields.types import Count, NonNegative, Positive
from p3s.learning.learners import distances
from p3s.networks import projected
from p3s.schemes.base import StepScheme
from p3s.trees import merge, pick, trained
from p3s.types import EnvSpec, Guide, Learner, Params


class CenterState(NamedTuple):
    """The learners, the center and its optimizer."""

    learners: Learner
    indices: jax.Array
    center: Params
    center_optimizer: Any


def center_loss(
    center: Params, algorithm: Algorithm, policies: Params, observations: jax.Array, beta: float
) -> jax.Array:
    """Appendix E: beta times the distances of all learners to the center."""
    return beta * distances(algorithm, policies, center, observations).sum()


@dataclass(frozen=True, kw_only=True)
class Center(StepScheme):
    """All learners are pulled to a center policy that follows them."""

    name: ClassVar[str] = "center"
    fewest_learners: ClassVar[int] = 2
    extra_champions: ClassVar[tuple[str, ...]] = ("center",)

    review_period: Count = 40
    """Own steps of a learner between two gradient steps of the center (M)."""
    beta: NonNegative = 1.0
    """Weight of the pull to the center (β)."""
    center_learning_rate: Positive = 1e-3
    """Adam's step size for the center."""

    def init(self, key: jax.Array, spec: EnvSpec) -> CenterState:
        learners = self.init_learners(key, spec)
        center = pick(self.algorithm.policy_of(learners), 0)
        optimizer = self._optimizer.init(trained(center))
        return CenterState(learners, jnp.arange(self.num_learners), center, optimizer)

    def with_start(
        self, state: CenterState, policy: Params, learners: Sequence[int]
    ) -> CenterState:
        state = super().with_start(state, policy, learners)
        return state._replace(center=policy) if 0 in learners else state

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.center_learning_rate)

    def champions(self, state: CenterState) -> Params:
        return jax.tree.map(
            lambda leaf, center: jnp.concatenate([leaf, center[None]]),
            self.policies(state),
            state.center,
        )

    def guide(self, state: CenterState) -> Guide:
        return Guide(state.center, jnp.full(state.indices.shape, self.beta, jnp.float32))

    @partial(jax.jit, static_argnums=0)
    def _move(self, state: CenterState, observations: jax.Array) -> tuple[Params, Any, jax.Array]:
        """One gradient step of the center."""
        policies, part = self.policies(state), trained(state.center)

        def loss_of(part: Params) -> jax.Array:
            center = merge(part, state.center)
            return center_loss(center, self.algorithm, policies, observations, self.beta)

        loss, gradient = jax.value_and_grad(loss_of)(part)
        updates, optimizer = self._optimizer.update(gradient, state.center_optimizer)
        center = merge(optax.apply_updates(part, updates), pick(policies, 0))
        return projected(center), optimizer, loss

    def review(
        self,
        state: CenterState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[CenterState, dict[str, Any]]:
        center, optimizer, loss = self._move(state, observations)
        state = state._replace(center=center, center_optimizer=optimizer)
        return state, {"best": self.best(recent_returns), "center_loss": float(loss)}
