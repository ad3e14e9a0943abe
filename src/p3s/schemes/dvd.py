"""Diversity via determinants, DvD (Parker-Holder et al. 2020): a population that stays apart.

    every step:   as in experience sharing, but policies minimize together
        sum_i L(phi_i) - w log det K,    w = lambda / (1 - lambda)
        K_ij = exp(-mean_s ‖a_i(s) - a_j(s)‖² / 2 width²),  plus a little on the diagonal
        with the noiseless actions a_i at probing states s of the replay
    every M own steps, the chief
        counts for the lambda in force whether the best mean return has risen, of the episodes
        finished since it was chosen, over that of those before
        draws a success rate of each lambda from its Beta distribution, and takes the highest

log det K is 0 where all act differently and falls without bound, but for the diagonal, as two
policies become one. A term whose gradient is not finite is left out.

Differs from the authors in: every learner has its own value functions and there is one replay;
squares are averaged over states, so that `kernel_width` does not depend on their number; outcomes
of the bandit fade, where theirs has a window; a rise is one over the review before, where theirs
is one over the best of five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.errors import UserError
from p3s.experience.returns import NONE, new_returns, noted
from p3s.fields.layers import Layer
from p3s.fields.types import Count, Decay, Positive
from p3s.learning.learners import Coupling
from p3s.schemes.base import StepScheme
from p3s.types import EnvSpec, Learner, Params, Recorded, Transition

DIAGONAL = 1e-3
"""What is added to the diagonal of K, relative to it; it bounds the gradient of log det K."""


class DvDState(NamedTuple):
    """The learners and the bandit."""

    learners: Learner
    indices: jax.Array
    arm: jax.Array
    """Place of the weight in force."""
    outcomes: jax.Array
    """For each weight how often the best return fell and rose while it was in force, fading."""
    best_return: jax.Array
    """Best mean return before the weight was chosen."""
    returns: jax.Array
    """Recent returns when the weight was chosen, (learners, E_r); `noted`."""
    num_chosen: jax.Array
    """How often a weight was chosen."""


def log_determinant(actions: jax.Array, width: float) -> jax.Array:
    """log det K of the members' actions, (members, states, dimensions); 0 is as far as can be."""
    apart = jnp.sum((actions[:, None] - actions[None]) ** 2, axis=-1).mean(axis=-1)
    gram = jnp.exp(-apart / (2 * width**2))
    gram = (gram + DIAGONAL * jnp.eye(len(actions), dtype=gram.dtype)) / (1 + DIAGONAL)
    return jnp.linalg.slogdet(gram)[1]


def diversity(actions: jax.Array, width: float) -> tuple[jax.Array, jax.Array]:
    """log det K and its gradient by the actions; both 0 where one of them is not finite."""
    value, gradient = jax.value_and_grad(log_determinant)(actions, width)
    finite = jnp.isfinite(value) & jnp.isfinite(gradient).all()
    return jnp.where(finite, value, 0.0), jnp.where(finite, gradient, 0.0)


def count_outcome(outcomes: np.ndarray, arm: int, rose: bool, memory: int) -> np.ndarray:
    """The outcomes with one more; earlier ones fade so that they make up for `memory` in all."""
    counted = outcomes * (1 - 1 / memory)
    counted[arm, int(rose)] += 1
    return counted


def choose_arm(outcomes: np.ndarray, rng: np.random.Generator) -> int:
    """Thompson sampling: the arm whose rate, drawn from Beta(1 + rose, 1 + fell), is highest."""
    return int(np.argmax(rng.beta(1 + outcomes[:, 1], 1 + outcomes[:, 0])))


@dataclass(frozen=True, kw_only=True)
class DvD(StepScheme):
    """Learners share one replay and are pushed apart, as hard as a bandit finds good."""

    name: ClassVar[str] = "dvd"
    adds_loss_terms: ClassVar[bool] = True
    fewest_learners: ClassVar[int] = 2
    presets: ClassVar[tuple[Layer, ...]] = (Layer("", {"learners_start": "independent"}),)

    num_learners: Count = 5
    """Learners, each with its own environment copy (N)."""
    diversity_weights: tuple[Decay, ...] = (0.0, 0.5)
    """Shares of diversity in the policies' objective that the bandit chooses from (λ); the last
    one is in force at the start."""
    num_probing_states: Count = 20
    """States of the minibatches at which actions are compared, as far as there are enough."""
    kernel_width: Positive = 1.0
    """Distance of actions at which policies begin to count as different."""
    bandit_memory: Count = 50
    """Outcomes that the bandit remembers, about."""

    def problem(self) -> UserError | None:
        if not self.diversity_weights:
            message = "diversity_weights must name one weight at least"
            return UserError(message, "diversity_weights")
        if self.algorithm.actions == "discrete":
            return UserError(
                "scheme dvd measures distances between continuous actions, and "
                f"{self.algorithm.name} has discrete ones: see 'p3s algorithms'",
                "algorithm",
            )
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> DvDState:
        plain = super().init(key, spec)._asdict()
        count = len(self.diversity_weights)
        return DvDState(
            **plain,
            arm=jnp.int32(count - 1),
            outcomes=jnp.zeros((count, 2), jnp.float32),
            best_return=jnp.float32(0.0),
            returns=jnp.full((self.num_learners, self.num_recent), NONE, jnp.float32),
            num_chosen=jnp.int32(0),
        )

    def learn(
        self, state: DvDState, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[DvDState, Recorded]:
        coupling, more = self._coupling(state, batches, key) if with_policy else (None, {})
        state, metrics = self.learn_with(state, batches, key, with_policy, coupling=coupling)
        return state, {**metrics, **more}

    def _coupling(
        self, state: DvDState, batches: Transition, key: jax.Array
    ) -> tuple[Coupling, Recorded]:
        """The term of each policy, which has the value and the gradient of the common one."""
        seen = batches.observation
        each = -(-self.num_probing_states // self.num_learners)
        states = jnp.concatenate(list(seen[:, :each]))[: self.num_probing_states]

        def actions_of(policy: Params) -> jax.Array:
            return self.algorithm.act(policy, states, key, explore=False)

        actions = jax.lax.stop_gradient(jax.vmap(actions_of)(self.policies(state)))
        value, gradients = diversity(actions, self.kernel_width)
        share = jnp.asarray(self.diversity_weights, jnp.float32)[state.arm]
        weight = share / (1 - share)

        def term(place: jax.Array, policy: Params) -> jax.Array:
            moved = actions_of(policy) - actions[place]
            return -weight * (value + jnp.sum(gradients[place] * moved))

        return term, {"diversity": jnp.full(self.num_learners, value)}

    def review(
        self,
        state: DvDState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[DvDState, dict[str, Any]]:
        arm, outcomes, rose = int(state.arm), np.array(state.outcomes, float), None
        since = new_returns(np.asarray(state.returns), recent_returns)
        # Without a new return there is nothing to learn, and the weight stays.
        if (leader := chief.best_learner(since)) is not None:
            latest = np.float32(chief.mean_returns(since)[leader])
            if int(state.num_chosen) > 0:
                rose = bool(latest > state.best_return)
                outcomes = count_outcome(outcomes, arm, rose, self.bandit_memory)
            arm = choose_arm(outcomes, rng)
            state = state._replace(
                arm=jnp.int32(arm),
                outcomes=jnp.asarray(outcomes, jnp.float32),
                best_return=jnp.float32(latest),
                returns=jnp.asarray(noted(recent_returns)),
                num_chosen=state.num_chosen + 1,
            )
        return state, {
            "best": self.best(recent_returns),
            "diversity_weight": self.diversity_weights[arm],
            "rose": rose,
            "outcomes": outcomes.tolist(),
        }
