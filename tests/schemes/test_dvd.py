"""DvD: the determinant on numbers worked by hand, its term in the loss, and the bandit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s import keys
from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes import DvD
from p3s.schemes.dvd import choose_arm, count_outcome, diversity, log_determinant
from p3s.trees import pick
from p3s.types import Guide
from tests.helpers import leaves, problem_of
from tests.helpers_losses import SPECS, random_batch

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = SPECS["continuous"]


def actions(*members: list[float]) -> jax.Array:
    """One state and one dimension, or more states."""
    return jnp.array(members, jnp.float32)[..., None]


class TestDeterminant:
    def test_two_members(self):
        """Squares 1 and 4 at two states: k = exp(-2.5 / 2 · 4); det = 1 - (k / 1.001)²."""
        found = log_determinant(actions([0.0, 0.0], [1.0, 2.0]), 2.0)
        k = np.exp(-2.5 / 8) / 1.001
        assert float(found) == pytest.approx(np.log(1 - k**2), rel=1e-4)

    def test_three_members(self):
        """1 - a² - b² - c² + 2abc, for members at 0, 1 and 3."""
        found = log_determinant(actions([0.0], [1.0], [3.0]), 1.0)
        a, b, c = (np.exp(-d / 2) / 1.001 for d in (1, 9, 4))
        expected = np.log(1 - a**2 - b**2 - c**2 + 2 * a * b * c)
        assert float(found) == pytest.approx(expected, rel=1e-4)

    def test_far_apart_is_zero_and_equal_is_bounded(self):
        assert float(log_determinant(actions([0.0], [9.0]), 1.0)) == pytest.approx(0, abs=1e-6)
        value, gradient = diversity(actions([0.3], [0.3], [0.3]), 1.0)
        assert -20 < float(value) < -10
        assert not gradient.any()

    def test_gradient_pushes_apart_and_is_bounded(self):
        for gap in (1.0, 0.1, 1e-2, 1e-4):
            _, gradient = diversity(actions([0.0], [gap]), 1.0)
            first, second = np.asarray(gradient).ravel()
            assert first < 0 < second
            assert second < 25  # 1 / sqrt(2 · 0.001)

    @pytest.mark.parametrize("broken", [np.nan, np.inf])
    def test_without_finite_actions_there_is_no_term(self, broken):
        value, gradient = diversity(actions([0.0], [1.0], [broken]), 1.0)
        assert float(value) == 0
        assert not np.asarray(gradient).any()


class TestBandit:
    def test_outcomes_fade(self):
        outcomes = np.zeros((2, 2))
        for rose in (True, True, False):
            outcomes = count_outcome(outcomes, 1, rose, 2)
        assert outcomes.tolist() == [[0, 0], [1, 0.75]]

    def test_choice_follows_the_outcomes(self):
        rng = np.random.default_rng(0)
        outcomes = np.array([[40.0, 2.0], [2.0, 40.0]])
        assert {choose_arm(outcomes, rng) for _ in range(20)} == {1}
        assert {choose_arm(np.zeros((2, 2)), rng) for _ in range(20)} == {0, 1}

    def test_choice_is_that_of_the_drawn_rates(self):
        outcomes = np.array([[1.0, 3.0], [0.0, 2.0], [5.0, 0.0]])
        rates = np.random.default_rng(3).beta([4, 3, 1], [2, 1, 6])
        assert choose_arm(outcomes, np.random.default_rng(3)) == np.argmax(rates)

    def test_reviews(self):
        scheme = DvD(algorithm=TINY, num_learners=2, bandit_memory=10, recent_episodes=1)
        state, rng = scheme.init(jax.random.key(0), SPEC), np.random.default_rng(1)
        assert int(state.arm) == 1
        found, arms = [], [1]
        for best in (np.nan, 5.0, 5.0, 7.0, 6.0):
            returns = np.array([[best - 1], [best]])
            state, review = scheme.review(state, returns, np.zeros((1, 2)), rng)
            found.append(review["rose"])
            arms.append(int(state.arm))
            assert review["diversity_weight"] == (0.0, 0.5)[arms[-1]]
        assert found == [None, None, None, True, False]
        assert arms[1] == 1  # nothing known
        assert arms[3] == arms[2]  # nothing new
        expected = np.zeros((2, 2))
        expected[arms[3], 1] += 0.9
        expected[arms[4], 0] += 1
        np.testing.assert_allclose(state.outcomes, expected, rtol=1e-6)
        assert float(state.best_return) == 6
        assert int(state.num_chosen) == 3

    def test_only_returns_since_the_last_choice_count(self):
        """Learner 1 plays 10, 20, then 12: it fell from a mean of 15 to 12, though its last two
        returns have a mean of 16. Then learner 0 plays 19, learner 1 18, and nobody anything."""
        scheme = DvD(algorithm=TINY, num_learners=2, recent_episodes=2)
        state, rng, found = scheme.init(jax.random.key(0), SPEC), np.random.default_rng(0), []
        for windows in (
            [[np.nan, np.nan], [10.0, 20.0]],
            [[np.nan, np.nan], [20.0, 12.0]],
            [[np.nan, 19.0], [20.0, 12.0]],
            [[np.nan, 19.0], [12.0, 18.0]],
            [[np.nan, 19.0], [12.0, 18.0]],
        ):
            state, review = scheme.review(state, np.array(windows), np.zeros((1, 2)), rng)
            found.append((review["rose"], float(state.best_return)))
        assert found == [(None, 15.0), (False, 12.0), (True, 19.0), (False, 18.0), (None, 18.0)]


class TestTerm:
    scheme = DvD(
        algorithm=TINY, num_learners=3, learners_start="independent", num_probing_states=5,
        diversity_weights=(0.0, 0.75), kernel_width=0.5,
    )  # fmt: skip

    @pytest.fixture(scope="class")
    def updated(self):
        state = self.scheme.init(jax.random.key(0), SPEC)
        batches = jax.tree.map(lambda *parts: jnp.stack(parts),
                               *(random_batch(SPEC, seed, 7) for seed in range(3)))  # fmt: skip
        key = jax.random.key(1)
        learn = jax.jit(self.scheme.learn, static_argnums=3)
        return state, batches, key, learn(state, batches, key, True), learn

    def test_it_is_the_gradient_of_the_common_objective(self, updated):
        """Learner 1 alone, with -0.75 / 0.25 log det K in its loss and the others fixed."""
        state, batches, key, (after, metrics), _ = updated
        probes = jnp.concatenate([batches.observation[i, :2] for i in range(3)])[:5]
        acts = jax.vmap(lambda policy: TINY.act(policy, probes, key, explore=False))
        fixed = acts(state.learners.policy)

        def term(policy):
            own = TINY.act(policy, probes, key, explore=False)
            return -3.0 * log_determinant(fixed.at[1].set(own), 0.5)

        value_key, policy_key = jax.random.split(keys.per_learner(key, jnp.arange(3))[1])
        learner, batch = pick(state.learners, 1), pick(batches, 1)
        guide = Guide(learner.policy, jnp.float32(0), term)

        @jax.jit
        def step(learner):
            learner, _ = TINY.value_step(learner, batch, value_key)
            return TINY.policy_step(learner, batch, guide, policy_key)

        learner, alone = step(learner)
        for ours, theirs in zip(leaves(pick(after.learners, 1)), leaves(learner), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        assert float(metrics["policy_loss"][1]) == pytest.approx(float(alone.loss), rel=1e-4)
        expected = float(log_determinant(fixed, 0.5))
        np.testing.assert_allclose(metrics["diversity"], [expected] * 3, rtol=1e-5)

    def test_weight_0_is_no_term(self, updated):
        state, batches, key, (after, _), learn = updated
        without, _ = learn(state._replace(arm=jnp.int32(0)), batches, key, True)
        plain = resolve(
            None, "sharing", preset="paper", hidden_sizes=(4,), num_learners=3
        ).scheme  # fmt: skip
        sharing = plain.init(jax.random.key(0), SPEC)._replace(learners=state.learners)
        sharing, _ = jax.jit(plain.learn, static_argnums=3)(sharing, batches, key, True)
        for ours, theirs in zip(leaves(without.learners), leaves(sharing.learners), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
        moved = zip(leaves(after.learners.policy), leaves(without.learners.policy), strict=True)
        assert not all(np.array_equal(*pair) for pair in moved)

    def test_a_broken_member_leaves_the_others_alone(self, updated):
        state, batches, key, _, learn = updated
        policies = jax.tree.map(lambda leaf: leaf.at[2].set(jnp.nan), state.learners.policy)
        broken = state._replace(learners=state.learners._replace(policy=policies))
        after, metrics = learn(broken, batches, key, True)
        assert all(np.isfinite(leaf[:2]).all() for leaf in leaves(after.learners.policy))
        assert metrics["diversity"].tolist() == [0, 0, 0]


def test_problems():
    assert "at least 2" in problem_of(DvD(algorithm=TINY, num_learners=1))
    assert "one weight at least" in problem_of(DvD(algorithm=TINY, diversity_weights=()))
    assert "below 1" in problem_of(DvD(algorithm=TINY, diversity_weights=(0.0, 1.0)))
    assert "dqn has discrete ones" in problem_of(DvD(algorithm=ALGORITHMS["dqn"]()))
