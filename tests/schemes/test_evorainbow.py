"""EvoRainbow: what a round does to the distribution, the population and the learner."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes import EvoRainbow
from p3s.schemes.evorainbow import NOBODY, move_towards
from p3s.trees import Carried, pick
from p3s.types import EnvSpec, Transition
from tests.helpers import leaves, small_training

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)
SCHEME = EvoRainbow(
    algorithm=TINY, num_learners=5, initial_variance=0.5, damping=0.2, final_damping=0.1,
    damping_decay=0.5, champion_rate=0.25,
)  # fmt: skip


def equal(one, other) -> bool:
    return all(map(np.array_equal, leaves(one), leaves(other)))


def close(one, other) -> bool:
    return all(
        np.allclose(ours, theirs, rtol=1e-5, atol=1e-7)
        for ours, theirs in zip(leaves(one), leaves(other), strict=True)
    )


def review(state, *returns: float):
    """The learner's own episode is the last and is nobody's fitness."""
    recent = np.array([*returns, 99.0])[:, None]
    return SCHEME.review(state, recent, np.zeros((3, 2), np.float32), np.random.default_rng(0))


@pytest.fixture(scope="module")
def begun():
    return jax.jit(SCHEME.init, static_argnums=1)(jax.random.key(0), SPEC)


@pytest.fixture(scope="module")
def reviewed(begun):
    """Ranking 3, 1, 4, 0, 2."""
    return review(begun, 2.0, 8.0, 1.0, 9.0, 3.0)


def test_move_towards():
    ours = {"w": jnp.array([0.0, 4.0]), "count": Carried(jnp.int32(7))}
    theirs = {"w": jnp.array([2.0, 0.0]), "count": Carried(jnp.int32(9))}
    moved = move_towards(ours, theirs, 0.25)
    assert moved["w"].tolist() == [0.5, 3.0]
    assert int(moved["count"].value) == 7
    assert equal(move_towards(ours, theirs, 0.0), ours)


class TestFirstRound:
    def test_nobody_is_injected_at_the_start(self, begun):
        assert int(begun.injected) == NOBODY
        assert not equal(begun.mean, pick(begun.learners.policy, 0))
        assert {len(leaf) for leaf in leaves(begun.population)} == {5}

    def test_distribution_is_that_of_the_best_two(self, begun, reviewed):
        """Equal weights, about the new mean; damping 0.1 + 0.5 · (0.2 - 0.1) = 0.15."""
        after, found = reviewed
        assert found["elites"] == [3, 1]
        assert found["damping"] == pytest.approx(0.15)
        best = pick(begun.population, np.array([3, 1]))
        assert close(after.mean, jax.tree.map(lambda leaf: leaf.mean(axis=0), best))
        assert close(after.variance, jax.tree.map(lambda leaf: leaf.var(axis=0) + 0.15, best))
        assert equal(after.champion, pick(begun.population, 3))

    def test_the_learner_stays_and_takes_the_place_of_the_worst(self, begun, reviewed):
        after, found = reviewed
        assert found["learner_rank"] is None
        assert found["injected"] == int(after.injected) == 2
        assert equal(after.learners, begun.learners)
        assert equal(pick(after.population, 2), pick(after.learners.policy, 0))
        drawn = [leaf[[0, 1, 3, 4]] for leaf in leaves(after.population)]
        assert all(len(np.unique(leaf)) == leaf.size for leaf in drawn)


class TestLaterRounds:
    def test_a_learner_that_lost_moves_towards_the_best(self, reviewed):
        """phi + 0.25 (phi_best - phi), the target policy likewise, and nothing else."""
        before, _ = reviewed
        after, found = review(before, 9.0, 1.0, 8.0, 2.0, 3.0)
        assert found["learner_rank"] == 1
        best, old, new = pick(before.population, 0), before.learners, after.learners

        def moved(leaf, goal):
            return 0.75 * leaf + 0.25 * goal[None]

        assert close(new.policy, jax.tree.map(moved, old.policy, best))
        assert close(new.targets["policy"], jax.tree.map(moved, old.targets["policy"], best))
        assert equal(new.value, old.value)
        assert equal(new.targets["value"], old.targets["value"])
        assert equal(new.optimizers, old.optimizers)
        assert int(after.injected) == 1
        assert equal(pick(after.population, 1), pick(new.policy, 0))

    def test_a_learner_that_won_stays_and_leads_the_distribution(self, reviewed):
        before, _ = reviewed
        after, found = review(before, 1.0, 2.0, 9.0, 8.0, 3.0)
        assert found["learner_rank"] == 0
        assert found["elites"] == [2, 3]
        assert equal(after.learners, before.learners)
        assert equal(after.champion, pick(before.learners.policy, 0))

    def test_rate_0_keeps_the_learner(self, reviewed):
        before, _ = reviewed
        still = dataclasses.replace(SCHEME, champion_rate=0.0)
        returns = np.arange(6.0)[:, None]
        after, _ = still.review(before, returns, np.zeros((3, 2)), np.random.default_rng(0))
        assert equal(after.learners, before.learners)


def test_population_acts_without_noise_and_the_learner_with(begun):
    act = jax.jit(SCHEME.act)
    seen = np.ones((6, 2), np.float32)
    first, second = (
        np.asarray(act(SCHEME.acting(begun), seen, jax.random.key(0), np.int32(step)))
        for step in (1, 2)
    )
    assert (first[:5] == second[:5]).all()
    assert (first[5] != second[5]).all()


def test_only_the_learner_learns(begun):
    draw = np.random.default_rng(0)
    shapes = [(1, 7, 2), (1, 7, 1), (1, 7), (1, 7), (1, 7, 2)]
    batch = Transition(*(jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes))
    after, metrics = jax.jit(SCHEME.learn, static_argnums=3)(begun, batch, jax.random.key(1), True)
    assert not equal(after.learners, begun.learners)
    assert equal(after._replace(learners=begun.learners), begun)
    assert {value.shape for value in metrics.values()} == {(1,)}


@pytest.mark.slow
def test_a_round_is_an_episode_of_each_and_as_many_updates_as_steps():
    training = small_training("Reacher-v5", scheme="evorainbow", initial_steps=1,
                              evaluation_period=0)  # fmt: skip
    training.run(5 * 50 + 10)
    assert training.last_review["learner_rank"] is None
    assert training.counters.updates == 5 * 50
    training.close()


@pytest.mark.parametrize("preset", ["paper", "authors", "recommended"])
def test_presets_agree(preset):
    scheme = resolve("Hopper-v5", "evorainbow", preset=preset).scheme
    assert (scheme.num_learners, scheme.champion_rate, scheme._elites) == (5, 0.1, 2)
    assert (scheme.sampling, scheme.elite_weights) == ("independent", "log")
    assert (scheme.variance_estimate, scheme.damping) == ("cem_rl", 1e-3)


@pytest.mark.parametrize("preset", ["paper", "authors", "recommended"])
def test_values_of_the_original_run_script(preset):
    found = {}
    for family in ("Humanoid", "Ant", "Walker2d", "Swimmer"):
        scheme = resolve(f"{family}-v5", "evorainbow", preset=preset).scheme
        found[family] = (scheme.damping, scheme.final_damping, scheme.champion_rate)
    assert found.pop("Humanoid") == (0.1, 1e-5, 0.0)
    assert set(found.values()) == {(1e-3, 1e-5, 0.1)}
