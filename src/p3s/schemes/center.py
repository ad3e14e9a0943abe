"""Center (Appendix E): N policies pulled to a centre policy that follows them.

    every step:  learner i minimises L(phi_i) + beta D(pi_i, pi_c)
    every M own steps: one gradient step of the centre on beta sum_i D(pi_i, pi_c)

Unlike in P3S every learner is pulled, beta is fixed, and the guide is trained, not chosen. The
centre starts as learner 0 does and is evaluated beside the learners (`center_returns`), without
counting for the score. Its optimiser, which the text does not name, is Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from p3s.algorithms import Algorithm
from p3s.learning.learners import distances, pick, update_learners
from p3s.schemes.base import StepScheme
from p3s.types import EnvSpec, Guide, Learner, Metrics, Params, Transition


class CenterState(NamedTuple):
    """The learners, the centre and its optimiser."""

    learners: Learner
    center: Params
    center_optimizer: Any


def center_loss(
    center: Params, algorithm: Algorithm, policies: Params, observations: jax.Array, beta: float
) -> jax.Array:
    """Appendix E: beta times the distances of all learners to the centre."""
    return beta * distances(algorithm, policies, center, observations).sum()


@dataclass(frozen=True, kw_only=True)
class Center(StepScheme):
    """All learners are pulled to a centre policy that follows them."""

    name: ClassVar[str] = "center"
    paper_name: ClassVar[str] = "Center-TD3 (Appendix E)"
    extra_champions: ClassVar[tuple[str, ...]] = ("center",)

    review_period: int = 40
    """Own steps of a learner between two gradient steps of the centre (M)."""
    beta: float = 1.0
    """Weight of the pull to the centre (β)."""
    center_learning_rate: float = 1e-3
    """Adam's step size for the centre."""

    def problem(self) -> str | None:
        if self.num_learners < 2:
            return f"scheme center needs two learners at least, not {self.num_learners}"
        if self.beta < 0:
            return f"beta must be at least 0, not {self.beta}"
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> CenterState:
        learners = self.init_learners(key, spec)
        center = pick(self.algorithm.policy_of(learners), 0)
        return CenterState(learners, center, self._optimizer.init(center))

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.center_learning_rate)

    def champions(self, state: CenterState) -> Params:
        return jax.tree.map(
            lambda leaf, center: jnp.concatenate([leaf, center[None]]),
            self.policies(state),
            state.center,
        )

    def learn(
        self, state: CenterState, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[CenterState, Metrics]:
        pull = Guide(state.center, jnp.full(self.num_learners, self.beta, jnp.float32))
        learners, metrics = update_learners(
            self.algorithm, state.learners, batches, pull, key, with_policy
        )
        return state._replace(learners=learners), metrics

    @partial(jax.jit, static_argnums=0)
    def _move(self, state: CenterState, observations: jax.Array) -> tuple[Params, Any, jax.Array]:
        """One gradient step of the centre."""
        loss, gradient = jax.value_and_grad(center_loss)(
            state.center, self.algorithm, self.policies(state), observations, self.beta
        )
        updates, optimizer = self._optimizer.update(gradient, state.center_optimizer)
        return optax.apply_updates(state.center, updates), optimizer, loss

    def review(
        self,
        state: CenterState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        draw: np.random.Generator,
    ) -> tuple[CenterState, dict[str, Any]]:
        center, optimizer, loss = self._move(state, observations)
        state = state._replace(center=center, center_optimizer=optimizer)
        return state, {"best": self.best(recent_returns), "center_loss": float(loss)}
