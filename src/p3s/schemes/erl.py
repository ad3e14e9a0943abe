"""Evolutionary RL, ERL (Khadka & Tumer 2018; Appendix F compares on Swimmer).

    in rounds (generations)
        1. every evolved policy plays noiseless episodes, the learner one noisy one; all
           transitions go into the common replay
        2. the best `elite_fraction` survive unchanged; tournaments of three choose parents of
           the rest; those that won no tournament are replaced by crossed-over copies of an elite
           and a winner; all but the elites mutate
        3. every `synchronization_period` rounds the learner's policy replaces the worst policy
        4. the learner takes as many gradient steps as the round had environment steps

The run is judged by the best policy of the round before; the learner's own policy is evaluated
too (`gradient_returns`), without counting for the score.

Only trained leaves are crossed over and mutated; a child carries what the best policy does.

The authors' base algorithm is DDPG; with it preset `authors` has their networks, rates and noise.

Differs from the authors in: the first layer of their value network takes observation and action
apart and has no layer norm; the learner plays while the population does, and its policy joins the
population before the round's gradient steps, not after; a crossover exchanges each unit with
probability one half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.errors import UserError
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import Count, CountOrZero, NonNegative, Share
from p3s.learning.learners import act, init_learners, update_learners
from p3s.networks import projected
from p3s.schemes.base import EpisodeScheme
from p3s.trees import merge, pick, trained
from p3s.types import EnvSpec, Guide, Learner, Params, Recorded, Transition

TOURNAMENT_SIZE = 3
LARGEST_WEIGHT = 1e6

ERL_DDPG = {
    "hidden_sizes": (400, 300),
    "activation": "elu",
    "layer_norm": True,
    "learning_rate": 5e-4,
    "policy_hidden_sizes": (128, 128),
    "policy_activation": "tanh",
    "policy_learning_rate": 5e-5,
    "batch_size": 128,
    "target_rate": 0.001,
    "exploration_noise": 0.2,
    "exploration_noise_kind": "ornstein_uhlenbeck",
    "exploration_noise_reversion": 0.15,
}
"""The base algorithm of ERL's own code."""
CODE = {
    "initial_steps": 0,
    "episodes_per_round": by_family({"Hopper": 5, "Walker2d": 3}),
    "elite_fraction": by_family({"Hopper": 0.3, "Ant": 0.3, "Walker2d": 0.2}),
    "synchronization_period": by_family({"Hopper": 1, "Ant": 1}),
}
"""Its own code; for environments that it was not run on as for Swimmer."""


class ERLState(NamedTuple):
    """The evolved policies, the best of the round before, and the learner (stacked, one)."""

    population: Params
    champion: Params
    learners: Learner
    generation: jax.Array


def tournament(ranking: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` winners of tournaments, each the best ranked of `TOURNAMENT_SIZE` random entrants."""
    entrants = rng.integers(len(ranking), size=(count, TOURNAMENT_SIZE))
    return ranking[entrants.min(axis=1)]


def cross_over(
    one: list[np.ndarray], other: list[np.ndarray], rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two children: each unit (last axis) of each array comes from one parent or the other."""
    first, second = [], []
    for ours, theirs in zip(one, other, strict=True):
        keep = rng.random(ours.shape[-1]) < 0.5
        first.append(np.where(keep, ours, theirs))
        second.append(np.where(keep, theirs, ours))
    return first, second


def mutate(
    arrays: list[np.ndarray], share: float, strength: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Change up to `share` of the entries of every matrix.

    Of these, 5 % move by N(0, (100 strength w)²), 5 % are drawn anew from N(0, 1), and the rest
    move by N(0, (strength w)²).
    """
    changed = []
    for array in arrays:
        if array.ndim < 2:
            changed.append(array)
            continue
        flat = array.ravel().copy()
        count = int(rng.integers(int(np.ceil(share * flat.size)) + 1))
        where = rng.integers(flat.size, size=count)
        kind, noise = rng.random(count), rng.standard_normal(count)
        weight = flat[where]
        factor = np.where(kind < 0.05, 100 * strength, strength)
        moved = np.where((kind >= 0.05) & (kind < 0.1), noise, weight + factor * weight * noise)
        flat[where] = np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        changed.append(flat.reshape(array.shape))
    return changed


def _put(stacked: np.ndarray, leaf: np.ndarray, index: int) -> np.ndarray:
    """The stacked leaves with one of them replaced."""
    stacked = np.array(stacked)
    stacked[index] = leaf
    return stacked


@dataclass(frozen=True, kw_only=True)
class BesideLearner(EpisodeScheme):
    """Base of `erl` and `evorainbow`: evolved policies and one gradient learner.

    Their state has a `population`, a `champion` and `learners`, of which there is one.
    """

    stacked: ClassVar[tuple[str, ...]] = ("learners",)
    has_own_code: ClassVar[bool] = True
    extra_champions: ClassVar[tuple[str, ...]] = ("gradient",)

    @property
    def num_envs(self) -> int:
        return self.num_learners + 1

    @property
    def num_trained(self) -> int:
        return 1

    @property
    def round_episodes(self) -> np.ndarray:
        return np.array([self.episodes_per_round] * self.num_learners + [1])

    def policies(self, state: Any) -> Params:
        return self._joined(state.population, self.algorithm.policy_of(state.learners))

    def champions(self, state: Any) -> Params:
        champion = jax.tree.map(lambda leaf: leaf[None], state.champion)
        return self._joined(champion, self.algorithm.policy_of(state.learners))

    @staticmethod
    def _joined(first: Params, second: Params) -> Params:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), first, second)

    def acting(self, state: Any) -> Any:
        return state.population, self.algorithm.policy_of(state.learners)

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        population, learner = acting
        evolving, last = jnp.arange(self.num_learners), jnp.arange(1)
        evolved = act(self.algorithm, population, observations[:-1], key, evolving, step, False)
        noisy = act(self.algorithm, learner, observations[-1:], key, last, step, explore=True)
        return jnp.concatenate([evolved, noisy])

    def learn(
        self, state: Any, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Recorded]:
        own = pick(self.algorithm.policy_of(state.learners), 0)
        pull = Guide(own, jnp.zeros(1, jnp.float32))
        learners, metrics = update_learners(
            self.algorithm, state.learners, batches, pull, key, jnp.arange(1), with_policy
        )
        return state._replace(learners=learners), metrics


@dataclass(frozen=True, kw_only=True)
class ERL(BesideLearner):
    """Policies evolve; a gradient learner learns from them and joins them at times."""

    name: ClassVar[str] = "erl"
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("its own code", CODE),
        Layer(
            "its own code",
            ERL_DDPG,
            lambda setting: setting.preset == "authors" and setting.algorithm.name == "ddpg",
        ),
    )

    num_learners: Count = 10
    """Evolved policies, each with its own environment copy, besides the learner's."""
    initial_steps: CountOrZero = 0
    """Own steps before the first update."""
    elite_fraction: Share = 0.1
    """Share of the population that survives a round unchanged, one at least."""
    mutation_probability: Share = 0.9
    """Probability that a policy mutates which is not an elite."""
    mutated_share: Share = 0.1
    """Largest share of a matrix's entries that a mutation changes."""
    mutation_strength: NonNegative = 0.1
    """Standard deviation of a mutation, as a share of the entry."""
    synchronization_period: Count = 10
    """Rounds after which the learner's policy replaces the worst of the population."""

    def problem(self) -> UserError | None:
        if self.num_elites >= max(self.num_learners, 2):
            return UserError(
                f"elite_fraction {self.elite_fraction} keeps all {self.num_learners} policies: "
                "at least one must be free to change",
                "elite_fraction",
            )
        return super().problem()

    @property
    def num_elites(self) -> int:
        """Policies that survive a round unchanged."""
        return max(1, int(self.elite_fraction * self.num_learners))

    def init(self, key: jax.Array, spec: EnvSpec) -> ERLState:
        learners = init_learners(self.algorithm, key, spec, self.num_learners + 1, False)
        population = jax.tree.map(lambda leaf: leaf[:-1], self.algorithm.policy_of(learners))
        learner = jax.tree.map(lambda leaf: leaf[-1:], learners)
        return ERLState(population, pick(population, 0), learner, jnp.int32(0))

    def review(
        self,
        state: ERLState,
        recent_returns: np.ndarray,
        observations: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[ERLState, dict[str, Any]]:
        fitness = chief.mean_returns(recent_returns)[:-1]
        ranking = np.argsort(-fitness, kind="stable")
        population = jax.device_get(state.population)
        leaves, structure = jax.tree.flatten(trained(population))
        genomes = [[leaf[index] for leaf in leaves] for index in range(self.num_learners)]
        genomes, about = self._evolve(genomes, ranking, rng)
        carriers = np.arange(self.num_learners)
        carriers[about["replaced"]] = ranking[0]
        carried = pick(population, carriers)
        generation = int(state.generation) + 1
        if generation % self.synchronization_period == 0:
            place = int(ranking[-1])
            learner = jax.device_get(pick(self.algorithm.policy_of(state.learners), 0))
            genomes[place] = jax.tree.leaves(trained(learner))
            carried = jax.tree.map(partial(_put, index=place), carried, learner)
            about["synchronized"] = place
        stacked = [np.stack(entries) for entries in zip(*genomes, strict=True)]
        after = ERLState(
            projected(merge(jax.tree.unflatten(structure, stacked), carried)),
            pick(state.population, int(ranking[0])),
            state.learners,
            jnp.int32(generation),
        )
        return after, {"best": int(ranking[0]), "generation": generation, **about}

    def _evolve(
        self, genomes: list[list[np.ndarray]], ranking: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[list[np.ndarray]], dict[str, Any]]:
        """The next generation, in the places of this one, and what was done."""
        elites = ranking[: self.num_elites]
        winners = tournament(ranking, self.num_learners - self.num_elites, rng)
        parents = [int(winner) for winner in winners if winner not in elites] or [int(elites[0])]
        replaced = [i for i in range(self.num_learners) if i not in elites and i not in winners]
        after = list(genomes)
        for place in range(0, len(replaced), 2):
            elite, parent = int(rng.choice(elites)), int(rng.choice(parents))
            children = cross_over(genomes[elite], genomes[parent], rng)
            for index, child in zip(replaced[place : place + 2], children, strict=False):
                after[index] = child
        mutated = []
        for index in range(self.num_learners):
            if index not in elites and rng.random() < self.mutation_probability:
                after[index] = mutate(after[index], self.mutated_share, self.mutation_strength, rng)
                mutated.append(index)
        return after, {"elites": elites.tolist(), "replaced": replaced, "mutated": mutated}
