"""Population-guided parallel policy search (Section 3, Appendix H).

    every step, each learner i
        acts in its own environment copy, stores into the common replay
        updates its values as the base algorithm does
        updates its policy on L(phi_i) + 1{i != b} beta D(pi_i, pi_b)              (eq. 1)
    every M own steps, the chief
        measures D_spread (to the guide) and D_change (since the last period)
        adapts beta by eq. 6, and pi_b <- a frozen copy of the best learner's policy

Before any learner has finished an episode there is no best: the guide stays the common
initialization and pulls every learner (paper), or nobody is guided (authors, `guide_from_start`).
A population of one has nobody to guide.

Where the authors' code differs from the text, a field names the difference: `distance_estimate`,
`beta_limit`, `distances_exclude`, `guide_from_start` here, others in `base.py` and in
`algorithms/td3.py`.

The best learner is best by its past: its policy has moved on since. With `guide_source` "snapshot"
the guide is a policy that has played a whole episode:

    at the end of learner i's episode
        played_i <- actor_i, with the episode's return;  actor_i <- pi_i, which plays the next one
    every M own steps, the chief
        b <- the learner with the highest latest return, and pi_b <- played_b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.errors import UserError
from p3s.fields.layers import Layer, Setting
from p3s.fields.types import Bounds, NonNegative
from p3s.learning.learners import distances, pairwise_distances
from p3s.schemes.base import Decision, StepScheme
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Learner, Params, Recorded, Transition

DistanceEstimate = Literal["period_end", "every_minibatch", "policy_minibatches"]
NOBODY = -1
SMALLEST_DISTANCE, LARGEST_DISTANCE = 1e-4, 1e4
"""The authors' code clips the distance at each state to this range before averaging."""
STATES_PER_MEASURED = 10
"""States of a minibatch for each one that `policy_minibatches` measures on."""

D_MIN = {
    ("Walker2d", False): 0.02,
    ("Ant", False): 0.02,
    ("Hopper", True): 0.02,
    ("Walker2d", True): 0.02,
    ("HalfCheetah", True): 0.02,
}
# Normals with TD3's exploration noise as their std, 0.1, whose means are ½‖.‖² = d apart, have a KL
# of d / 0.1²; SAC's target entropy means a std of 0.09 (docs/algorithms/sac.md).
KL_PER_SQUARE = 100.0


def smallest_radius(setting: Setting) -> float:
    """d_min of Appendix I, by environment and whether it is delayed, in the distance's unit."""
    unit = KL_PER_SQUARE if setting.distance == "kl" else 1.0
    return unit * D_MIN.get(setting.task, P3S.d_min)


class P3SState(NamedTuple):
    """The learners and the chief's memory."""

    learners: Learner
    indices: jax.Array
    old_policies: Params
    spread_sums: jax.Array
    change_sums: jax.Array
    guide: Params
    best: jax.Array
    beta: jax.Array
    num_measured: jax.Array
    actors: Params
    """The policies that play the present episodes; empty where the learners' own do."""
    played: Params
    """The policies that played the last finished episodes; empty likewise."""


@dataclass(frozen=True, kw_only=True)
class P3S(StepScheme):
    """The best learner guides the others softly, and the pull adapts."""

    name: ClassVar[str] = "p3s"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("Appendix I", {"d_min": smallest_radius}),)
    stacked: ClassVar[tuple[str, ...]] = (
        "learners", "indices", "old_policies", "spread_sums", "change_sums", "actors", "played",
    )  # fmt: skip

    beta: NonNegative = 1.0
    """Weight of the pull towards the best at the start (β); 0 keeps it off for good."""
    rho: NonNegative = 2.0
    """Search radius per policy change (ρ)."""
    d_min: NonNegative = 0.05
    """Smallest search radius (d_min)."""
    beta_limit: Annotated[float, Bounds(least=1, most=1e12)] = 1e9
    """β doubles only while below this and halves only while above its inverse: 1000 (authors); the
    text has no bound, so `paper` has one so wide that it only keeps β finite and above 0."""
    distance_estimate: DistanceEstimate = "period_end"
    """Measure D_spread and D_change on one batch at the end of a period (paper), or average them
    over the period, clipped to [1e-4, 1e4] at each state: over every minibatch (authors), or over a
    tenth of each minibatch of a policy step (policy_minibatches), which costs next to nothing."""
    distances_exclude: Literal["period_best", "new_best"] = "period_best"
    """Whom D_spread and D_change leave out: the best of the period that ends (paper), or the best
    just selected (authors)."""
    guide_from_start: bool = True
    """Before the first selection, pull towards the common initialization (paper) or not at all
    (authors)."""
    guide_source: Literal["learner", "snapshot"] = "learner"
    """What guides: the present policy of the learner with the highest mean of recent returns
    (paper), or the policy that played the best of the learners' latest episodes (snapshot). In the
    latter case a learner plays a whole episode with one policy."""

    def problem(self) -> UserError | None:
        if self.follows_episodes and self.return_memory is not None:
            message = "guide_source snapshot goes by latest returns: leave return_memory out"
            return UserError(message, "return_memory")
        if self.follows_episodes and self.envs_per_learner > 1:
            message = "guide_source snapshot is for one environment copy per learner"
            return UserError(f"{message}: leave envs_per_learner out", "envs_per_learner")
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> P3SState:
        learners = self.init_learners(key, spec)
        policies = self.algorithm.policy_of(learners)
        zeros = jnp.zeros(self.num_learners, jnp.float32)
        return P3SState(
            learners=learners,
            indices=jnp.arange(self.num_learners),
            old_policies=policies,
            spread_sums=zeros,
            change_sums=zeros,
            guide=pick(policies, 0),
            best=jnp.int32(NOBODY if self.num_learners > 1 else 0),
            beta=jnp.float32(self.beta),
            num_measured=jnp.int32(0),
            actors=jax.tree.map(jnp.copy, policies) if self.follows_episodes else (),
            played=jax.tree.map(jnp.copy, policies) if self.follows_episodes else (),
        )

    def with_start(self, state: P3SState, policy: Params, learners: Sequence[int]) -> P3SState:
        state = super().with_start(state, policy, learners)
        copied = partial(jax.tree.map, jnp.copy, self.policies(state))
        return state._replace(
            old_policies=copied(),
            actors=copied() if self.follows_episodes else (),
            played=copied() if self.follows_episodes else (),
            guide=policy if 0 in learners else state.guide,
        )

    @property
    def follows_episodes(self) -> bool:
        return self.guide_source == "snapshot"

    @property
    def num_recent(self) -> int:
        return 1 if self.follows_episodes else super().num_recent

    def acting(self, state: P3SState) -> Any:
        return (state.actors, state.indices) if self.follows_episodes else super().acting(state)

    def end_episodes(self, state: P3SState, ended: jax.Array) -> P3SState:
        def where_ended(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return state._replace(
            actors=jax.tree.map(where_ended, self.policies(state), state.actors),
            played=jax.tree.map(where_ended, state.actors, state.played),
        )

    def guide(self, state: P3SState) -> Guide:
        guided = state.indices != state.best
        if not self.guide_from_start:
            guided &= state.best != NOBODY
        return Guide(state.guide, jnp.where(guided, state.beta, 0.0))

    def learn(
        self, state: P3SState, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[P3SState, Recorded]:
        state, metrics = super().learn(state, batches, key, with_policy)
        if self.distance_estimate == "every_minibatch":
            state = self._measure_minibatches(state, batches.observation)
        elif self.distance_estimate == "policy_minibatches" and with_policy:
            few = -(-batches.reward.shape[1] // STATES_PER_MEASURED)
            state = self._measure_minibatches(state, batches.observation[:, :few])
        return state, metrics

    def _measure_minibatches(self, state: P3SState, observations: jax.Array) -> P3SState:
        """Add each learner's distances on what it has just learned from, (learners, batch, ...)."""

        def measure(policy: Params, old: Params, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
            def clipped_mean(other: Params) -> jax.Array:
                distance = self.algorithm.distance_between(policy, other, seen)
                return jnp.clip(distance, SMALLEST_DISTANCE, LARGEST_DISTANCE).mean()

            return clipped_mean(state.guide), clipped_mean(old)

        spreads, changes = jax.vmap(measure)(self.policies(state), state.old_policies, observations)
        return state._replace(
            spread_sums=state.spread_sums + spreads,
            change_sums=state.change_sums + changes,
            num_measured=state.num_measured + 1,
        )

    @partial(jax.jit, static_argnums=0)
    def _measure(self, state: P3SState, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Each learner's distance to the guide and to its own old policy."""
        if self.distance_estimate != "period_end":
            count = jnp.maximum(state.num_measured, 1)
            return state.spread_sums / count, state.change_sums / count
        policies = self.policies(state)
        return (
            distances(self.algorithm, policies, state.guide, observations),
            pairwise_distances(self.algorithm, policies, state.old_policies, observations),
        )

    def report(self, state: P3SState, observations: np.ndarray) -> dict[str, Any]:
        spreads, changes = self._measure(state, observations)
        return {"spreads": spreads, "changes": changes, "best": state.best, "beta": state.beta}

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        period_best = None if int(report["best"]) == NOBODY else int(report["best"])
        selected = chief.best_learner(recent_returns)
        new_best = period_best if selected is None else selected
        excluded = period_best if self.distances_exclude == "period_best" else new_best
        spread = chief.mean_over_others(report["spreads"], excluded)
        change = chief.mean_over_others(report["changes"], excluded)
        beta = float(report["beta"])
        guided = period_best is not None or self.guide_from_start
        if guided and spread is not None and change is not None:
            beta = chief.adapt_beta(beta, spread, change, self.rho, self.d_min, self.beta_limit)
        row = {"best": selected, "beta": beta, "spread": spread, "change": change}
        return Decision(row, () if selected is None else (selected,))

    def offer(self, state: P3SState, index: int) -> Params:
        """A copy of the policy, which the guide will be."""
        policies = state.played if self.follows_episodes else self.policies(state)
        return jax.tree.map(jnp.copy, pick(policies, index))

    def apply(self, state: P3SState, decision: Decision, offers: dict[int, Params]) -> P3SState:
        """Remember the policies as they are now; the best one is the guide."""
        policies, selected = self.policies(state), decision.row["best"]
        zeros = jnp.zeros_like(state.spread_sums)
        state = state._replace(
            old_policies=jax.tree.map(jnp.copy, policies),
            spread_sums=zeros,
            change_sums=jnp.copy(zeros),
            beta=jnp.full_like(state.beta, decision.row["beta"]),
            num_measured=jnp.zeros_like(state.num_measured),
        )
        if selected is None:
            return state
        return state._replace(
            guide=offers[selected],
            best=jnp.full_like(state.best, selected),
        )
