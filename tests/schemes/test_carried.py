"""What a policy carries travels with it through every scheme, and no evolution touches it.

The network has running statistics and counters (batch renormalization); test_combinations.py
checks that it fits everywhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes.search_distribution import draw_policies
from p3s.trees import Carried, merge, pick, trained
from tests.helpers import leaves, small_training
from tests.helpers_losses import SPECS, random_batch
from tests.networks_for_tests import BatchRenorm

SPEC = SPECS["continuous"]
SEEN = random_batch(SPEC, 2, 16).observation


def carried(tree) -> list[np.ndarray]:
    """All carried arrays of a tree."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Carried))
    return leaves([node for node in nodes if isinstance(node, Carried)])


def same(ours: list, theirs: list) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(np.array_equal, ours, theirs))


def make(scheme: str, algorithm: str = "td3", **fields):
    small = {"hidden_sizes": (4,), "batch_size": 7, "num_learners": 4}
    values = {**small, "network": BatchRenorm.name, **fields}
    return resolve(None, scheme, algorithm, "paper", **values).scheme


def started(scheme):
    """A state in which every policy carries something of its own."""
    state = jax.jit(scheme.init, static_argnums=1)(jax.random.key(0), SPEC)
    draw = np.random.default_rng(1)

    def mark(node):
        if not isinstance(node, Carried):
            return node
        return jax.tree.map(
            lambda leaf: leaf + draw.integers(1, 1000, leaf.shape).astype(leaf.dtype), node
        )

    return jax.tree.map(mark, state, is_leaf=lambda node: isinstance(node, Carried))


def review(scheme, state, returns):
    recent = np.repeat(np.array(returns)[:, None], scheme.num_recent, axis=1)
    return scheme.review(state, recent, SEEN, np.random.default_rng(0))


class TestGuidance:
    """Learner 2 is the best."""

    returns = (1.0, 0.0, 9.0, 2.0)

    def test_guide_of_p3s(self):
        scheme = make("p3s")
        state = started(scheme)
        after, _ = review(scheme, state, self.returns)
        policies = state.learners.policy
        assert same(carried(after.guide), carried(pick(policies, 2)))
        assert same(carried(after.old_policies), carried(policies))
        assert same(carried(after.learners), carried(state.learners))

    def test_copies_of_resetting(self):
        scheme = make("resetting", copied="policy_and_target")
        state = started(scheme)
        after, _ = review(scheme, state, self.returns)
        for index in range(4):
            ours, best = pick(after.learners, index), pick(state.learners, 2)
            assert same(carried(ours.policy), carried(best.policy))
            assert same(carried(ours.targets["policy"]), carried(best.targets["policy"]))
        assert same(carried(after.learners.value), carried(state.learners.value))

    @pytest.mark.parametrize("name", ["pbt", "pb2"])
    def test_copies_of_pbt(self, name):
        scheme = make(name)
        state = started(scheme)
        after, found = review(scheme, state, self.returns)
        assert found["copies"] == [[2, 1]]
        assert same(carried(pick(after.learners, 1)), carried(pick(state.learners, 2)))
        for index in (0, 2, 3):
            assert same(carried(pick(after.learners, index)), carried(pick(state.learners, index)))

    def test_center_carries_what_learner_0_does(self):
        scheme = make("center")
        state = started(scheme)
        after, _ = review(scheme, state, self.returns)
        assert same(carried(after.center), carried(pick(state.learners.policy, 0)))
        moments = [leaf.shape for leaf in leaves(after.center_optimizer) if leaf.ndim]
        assert len(moments) == 2 * len(leaves(trained(after.center)))


class TestCEM:
    scheme = make("cem", initial_variance=0.5)

    @pytest.mark.slow
    def test_the_mean_carries_what_the_best_does(self):
        state = started(self.scheme)
        after, found = review(self.scheme, state, (1.0, 7.0, 2.0, 3.0))
        assert found["elites"] == [1, 3]
        best = pick(self.scheme.policies(state), 1)
        assert same(carried(after.mean), carried(best))
        for index in range(4):
            policy = pick(self.scheme.policies(after), index)
            assert same(carried(policy), carried(best))
        count = len(leaves(trained(after.mean)))
        assert len(leaves(after.variance)) == count

    def test_trained_leaves_are_averaged(self):
        state = started(self.scheme)
        after, _ = review(self.scheme, state, (1.0, 7.0, 2.0, 3.0))
        elites = pick(self.scheme.policies(state), np.array([1, 3]))
        for mean, both in zip(leaves(trained(after.mean)), leaves(trained(elites)), strict=True):
            np.testing.assert_allclose(mean, both.mean(axis=0), rtol=1e-5, atol=1e-6)

    def test_draws(self):
        mean = {"w": jnp.zeros(3), "count": Carried(jnp.int32(7))}
        variance = {"w": jnp.ones(3), "count": None}
        drawn = draw_policies(jax.random.key(0), mean, variance, 5, True)
        assert drawn["count"].value.tolist() == [7] * 5
        assert len(np.unique(drawn["w"])) == 15


class TestERL:
    scheme = make("erl", num_learners=6, mutation_probability=1.0, synchronization_period=2)
    returns = (1.0, 7.0, 2.0, 3.0, 0.0, 5.0, 99.0)

    def test_children_carry_what_the_best_does_and_mutants_what_they_did(self):
        state = started(self.scheme)
        after, found = review(self.scheme, state, self.returns)
        assert found["best"] == 1
        assert found["replaced"]
        assert set(found["mutated"]) > set(found["replaced"])
        for index in range(6):
            source = 1 if index in found["replaced"] else index
            ours, theirs = pick(after.population, index), pick(state.population, source)
            assert same(carried(ours), carried(theirs))
            unchanged = same(leaves(trained(ours)), leaves(trained(theirs)))
            assert unchanged is (index in found["elites"])
        assert same(leaves(after.champion), leaves(pick(state.population, 1)))

    def test_the_learner_brings_its_own(self):
        state = started(self.scheme)
        state, _ = review(self.scheme, state, self.returns)
        after, found = review(self.scheme, state, self.returns)
        place = found["synchronized"]
        learner = pick(state.learners.policy, 0)
        assert same(leaves(pick(after.population, place)), leaves(learner))
        assert same(carried(pick(after.population, place)), carried(learner))


class TestEvoRainbow:
    def test_the_mean_carries_what_the_best_does_and_the_learner_what_it_did(self):
        scheme = make("evorainbow")
        state = started(scheme)._replace(injected=jnp.int32(0))
        after, found = review(scheme, state, (1.0, 7.0, 0.0, 3.0, 99.0))
        assert found["best"] == 1
        best = pick(state.population, 1)
        assert same(leaves(after.champion), leaves(best))
        assert same(carried(after.mean), carried(best))
        assert same(carried(after.learners), carried(state.learners))
        assert not same(leaves(trained(after.learners)), leaves(trained(state.learners)))
        learner = pick(after.learners.policy, 0)
        assert same(leaves(pick(after.population, 2)), leaves(learner))
        assert same(carried(pick(after.population, 2)), carried(learner))


@pytest.mark.slow
def test_an_update_moves_statistics_of_every_learner_by_its_own_minibatch():
    scheme = make("p3s", num_learners=2)
    state = jax.jit(scheme.init, static_argnums=1)(jax.random.key(0), SPEC)
    batch, other = random_batch(SPEC, 0), random_batch(SPEC, 1)
    batches = jax.tree.map(lambda *parts: np.stack(parts), batch, other)
    learn = jax.jit(scheme.learn, static_argnums=3)
    after, _ = learn(state, batches, jax.random.key(1), True)
    running = after.learners.policy.params["norms"][0]["running"].value
    for index, own in enumerate((batch, other)):
        expected = 0.01 * own.observation.mean(axis=0)
        np.testing.assert_allclose(running["mean"][index], expected, rtol=1e-4, atol=1e-6)
    assert running["passes"].tolist() == [1, 1]
    assert same(carried(after.guide), carried(state.guide))
    assert same(carried(after.old_policies), carried(state.old_policies))
    values_only, _ = learn(state, batches, jax.random.key(1), False)
    assert same(leaves(values_only.learners.policy), leaves(state.learners.policy))


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "algorithm"), [("p3s", "td3"), ("erl", "sac")])
def test_training(scheme, algorithm):
    """Statistics of the policies count their policy steps; files hold them."""
    training = small_training(
        "Pendulum-v1", scheme=scheme, algorithm=algorithm, network=BatchRenorm.name,
        num_learners=2, evaluation_period=0, initial_steps=10,
    )  # fmt: skip
    training.run(80 if scheme == "p3s" else 602)
    learners = training.crew.updater.state.learners
    updates = training.counters.updates
    assert updates > 0
    running = learners.value.params["norms"][0]["running"].value
    assert (np.asarray(running["passes"]) == updates).all()
    period = ALGORITHMS[algorithm]().policy_period
    passes = np.asarray(learners.policy.params["norms"][0]["running"].value["passes"])
    assert (passes == updates // period).all()
    assert all(np.isfinite(leaf).all() for leaf in leaves(training.crew.updater.state))
    training.close()


def test_merge_keeps_the_kinds_apart():
    scheme = make("p3s")
    policies = started(scheme).learners.policy
    doubled = jax.tree.map(lambda leaf: 2 * leaf, trained(policies))
    merged = merge(doubled, policies)
    assert same(carried(merged), carried(policies))
    assert same(leaves(trained(merged)), leaves(doubled))
