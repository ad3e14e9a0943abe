"""EvoRainbow-Exp (Li et al. 2024): a search distribution over policies, and one learner.

    in rounds
        1. policies are drawn from N(mean, diag(variance)); the learner's policy takes the place of
           the worst of the round before
        2. each of them plays noiseless episodes, and the learner a noisy one; all transitions go
           into the common replay
        3. mean and variance are taken from the best half
        4. if the learner's policy was among them and another was best, the learner moves towards
           that one: phi <- phi + champion_rate (phi_best - phi), its target policy likewise
        5. the learner takes as many gradient steps as the round had environment steps

The run is judged by the best policy of the round before; the learner's own policy is evaluated
too (`gradient_returns`), without counting for the score. Only trained leaves move.

Differs from the authors in: the learner plays while the population does, and its policy joins the
population before the round's gradient steps, not after; every policy is judged by whole episodes,
where the authors also use short ones with an estimate of what would follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import Count, Share
from p3s.learning.learners import init_learners
from p3s.schemes.erl import BesideLearner
from p3s.schemes.search_distribution import CEM_RL, SearchDistribution
from p3s.trees import follow, merge, pick, put, trained
from p3s.types import EnvSpec, Learner, Params

NOBODY = -1


class EvoRainbowState(NamedTuple):
    """The distribution, its policies, the best of the round before, and the learner (stacked)."""

    mean: Params
    variance: Params
    damping: jax.Array
    population: Params
    champion: Params
    learners: Learner
    injected: jax.Array
    """The place of the learner's policy in the population."""


def move_towards(policy: Params, other: Params, rate: Any) -> Params:
    """The policy moved towards another, with what it carries."""
    return merge(trained(follow(policy, other, rate)), policy)


@dataclass(frozen=True, kw_only=True)
class EvoRainbow(SearchDistribution, BesideLearner):
    """Policies are drawn around the best ones, and one learner follows them."""

    name: ClassVar[str] = "evorainbow"
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("CEM-RL's code", CEM_RL),
        Layer("its run script", {"damping": by_family({"Humanoid": 0.1})}),
        Layer("its run script", {"champion_rate": by_family({"Humanoid": 0.0})}),
    )

    num_learners: Count = 5
    """Policies of the population, each with its own environment copy, besides the learner's."""
    champion_rate: Share = 0.1
    """How far the learner moves towards the best policy after a round that its own did not win."""

    def init(self, key: jax.Array, spec: EnvSpec) -> EvoRainbowState:
        both = init_learners(self.algorithm, key, spec, 2, False)
        mean = self.algorithm.policy_of(pick(both, 0))
        state = EvoRainbowState(
            mean=mean,
            variance=self.start_variance(mean),
            damping=jnp.float32(self.damping),
            population=None,
            champion=jax.tree.map(jnp.copy, mean),
            learners=jax.tree.map(lambda leaf: leaf[1:], both),
            injected=jnp.int32(NOBODY),
        )
        return state._replace(population=self.draw(jax.random.fold_in(key, 2), state))

    @partial(jax.jit, static_argnums=0)
    def _evolve(
        self, state: EvoRainbowState, ranking: jax.Array, key: jax.Array
    ) -> EvoRainbowState:
        """The learner after its move, and the population of the next round, by their ranking."""
        champion, worst = pick(state.population, ranking[0]), ranking[-1]
        lost = (state.injected != NOBODY) & (state.injected != ranking[0])
        rate = jnp.where(lost, jnp.float32(self.champion_rate), 0.0)
        learner = pick(state.learners, 0)
        policy = move_towards(self.algorithm.policy_of(learner), champion, rate)
        learner = self.algorithm.with_policy(learner, policy)
        if "policy" in learner.targets:
            target = move_towards(learner.targets["policy"], champion, rate)
            learner = learner._replace(targets={**learner.targets, "policy": target})
        state = self.refit(state, pick(state.population, ranking[: self._elites]))
        return state._replace(
            population=put(self.draw(key, state), worst, policy),
            champion=champion,
            learners=jax.tree.map(lambda leaf: leaf[None], learner),
            injected=worst,
        )

    def review(
        self,
        state: EvoRainbowState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[EvoRainbowState, dict[str, Any]]:
        fitness = chief.mean_returns(recent_returns)[:-1]
        ranking = np.argsort(-fitness, kind="stable").astype(np.int32)
        before = int(state.injected)
        rank = None if before == NOBODY else int(np.flatnonzero(ranking == before)[0])
        state = self._evolve(state, ranking, jax.random.key(int(rng.integers(2**31))))
        return state, {
            "best": int(ranking[0]),
            "elites": ranking[: self._elites].tolist(),
            "learner_rank": rank,
            "injected": int(ranking[-1]),
            **self.spread(state),
        }
