"""PBT: who copies whom, perturbations, and fields of each learner's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.schemes import PBT
from p3s.schemes.pbt import exploit, perturb
from p3s.types import EnvSpec, Transition
from tests.helpers import small_training

DRAW = np.random.default_rng(0)
TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)


class TestPBT:
    def test_worst_quantile_continues_from_the_best(self):
        means = np.array([3.0, 1.0, np.nan, 4.0, 2.0, 0.0, 8.0, 7.0])
        for seed in range(20):
            sources = exploit(means, 0.25, np.random.default_rng(seed))
            assert [sources[i] for i in (0, 2, 3, 4, 6, 7)] == [0, 2, 3, 4, 6, 7]
            assert {sources[1], sources[5]} <= {6, 7}

    def test_who_took_over_is_judged_anew(self):
        training = small_training("Pendulum-v1", scheme="pbt", review_period=210, recent_episodes=3)
        training.run(4 * 210)
        [[_, taker]] = training.last_review["copies"]
        unknown = np.isnan(training.returns.values).all(axis=1)
        assert unknown.tolist() == [learner == taker for learner in range(4)]
        assert None not in training.last_review["recent_returns"]
        training.close()

    def test_who_finished_no_episode_is_left_alone(self):
        for known in ([], [1.0], [1.0, 2.0], [1.0, 2.0, 0.5]):
            means = np.array(known + [np.nan] * (4 - len(known)))
            sources = exploit(means, 0.5, np.random.default_rng(0))
            worst = int(np.argmin(known)) if len(known) > 1 else 9
            assert sources == [1 if index == worst else index for index in range(4)]

    def test_perturbation(self):
        assert perturb("learning_rate", 0.1, 1.2) == pytest.approx(0.12)
        assert 1 / (1 - perturb("discount_factor", 0.99, 1.2)) == pytest.approx(120)
        assert perturb("adam_momentum", 0.9, 2.0) == pytest.approx(0.95)

    def test_review_copies_all_and_perturbs_only_the_copy(self):
        scheme = PBT(algorithm=TINY, num_learners=4, learners_start="independent")
        before = scheme.init(jax.random.key(0), SPEC)
        returns = np.array([[1.0], [2.0], [0.0], [3.0]])
        after, review = scheme.review(before, returns, np.zeros((5, 2), np.float32), DRAW)
        assert review["copies"] == [[3, 2]]
        assert scheme.outdated(review) == [2]
        for leaf, old in zip(
            jax.tree.leaves(after.learners), jax.tree.leaves(before.learners), strict=True
        ):
            assert np.array_equal(leaf, np.asarray(old)[[0, 1, 3, 3]])
        for name, values in after.own_fields.items():
            old = np.asarray(before.own_fields[name])
            assert np.array_equal(np.asarray(values)[[0, 1, 3]], old[[0, 1, 3]])
            options = [perturb(name, old[3], factor) for factor in (1.2, 1 / 1.2)]
            assert np.isclose(float(values[2]), options, rtol=1e-6).any()

    def test_own_values_are_in_force(self):
        """Equal learners on equal batches part as their learning rates do, in one program."""
        scheme = PBT(algorithm=TINY, num_learners=2, perturbed=("learning_rate",))
        state = scheme.init(jax.random.key(0), SPEC)
        rates = np.array([1e-3, 4e-3], np.float32)
        state = state._replace(own_fields={"learning_rate": jnp.asarray(rates)})
        draw = np.random.default_rng(0)
        batch = Transition(draw.normal(size=(7, 2)), draw.normal(size=(7, 1)), np.ones(7),
                           np.zeros(7), draw.normal(size=(7, 2)))  # fmt: skip
        both = jax.tree.map(lambda leaf: jnp.float32(np.stack([leaf, leaf])), batch)
        after, _ = scheme.learn(state, both, jax.random.key(1), False)
        weights = [each.learners.value.params[0]["weight"] for each in (after, state)]
        moved = np.asarray(weights[0] - weights[1])
        np.testing.assert_allclose(moved[1], 4 * moved[0], rtol=2e-3, atol=1e-6)

    def test_exploration_noise_is_in_force(self):
        scheme = PBT(algorithm=TINY, num_learners=2, perturbed=("exploration_noise",))
        state = scheme.init(jax.random.key(0), SPEC)
        quiet = {"exploration_noise": jnp.array([0.0, 0.5], jnp.float32)}
        observations = np.zeros((2, 2), np.float32)
        actions = [
            np.asarray(scheme.act(scheme.acting(state._replace(own_fields=quiet)), observations,
                                  jax.random.key(0), np.int32(step)))
            for step in range(2)
        ]  # fmt: skip
        assert actions[0][0] == actions[1][0]
        assert actions[0][1] != actions[1][1]
