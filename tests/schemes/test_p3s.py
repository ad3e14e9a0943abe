"""P3S: who is pulled, when the guide changes, what a review measures."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.schemes import P3S
from p3s.schemes.p3s import P3SState
from p3s.train import Training
from p3s.types import EnvSpec, Transition
from tests.helpers import assert_same_bits, leaves, small_config, small_training

DRAW = np.random.default_rng(0)


class TestP3S:
    scheme = P3S(algorithm=ALGORITHMS["td3"](hidden_sizes=(4,)), num_learners=3)
    spec = EnvSpec.flat(2, 1)

    def state(self, **fields) -> P3SState:
        return self.scheme.init(jax.random.key(0), self.spec)._replace(**fields)

    def test_pull_spares_the_best(self):
        state = self.state(best=np.int32(1), beta=np.float32(4.0))
        assert self.scheme.guide(state).weight.tolist() == [4.0, 0.0, 4.0]

    def test_pull_before_the_first_selection(self):
        assert self.scheme.guide(self.state()).weight.tolist() == [1.0, 1.0, 1.0]
        authors = dataclasses.replace(self.scheme, guide_from_start=False)
        assert authors.guide(self.state()).weight.tolist() == [0.0, 0.0, 0.0]

    def test_guide_is_frozen_for_the_period(self):
        training = small_training(num_learners=2)
        training.run(2 * 60)
        before = jax.device_get(training.crew.updater.state.guide)
        training.run(2 * 74)
        assert jax.tree.all(jax.tree.map(np.array_equal, before, training.crew.updater.state.guide))
        training.run(2 * 75)
        best = training.last_review["best"]
        assert best is not None
        frozen = jax.tree.map(lambda leaf: leaf[best], training.crew.updater.state.learners.policy)
        assert jax.tree.all(jax.tree.map(np.array_equal, frozen, training.crew.updater.state.guide))

    @pytest.mark.parametrize(
        ("distances_exclude", "expected_spread", "expected_change"),
        [("period_best", (1 + 3) / 2, (10 + 30) / 2), ("new_best", (1 + 2) / 2, (10 + 20) / 2)],
    )
    def test_review_leaves_one_out(self, distances_exclude, expected_spread, expected_change):
        """Period's best is learner 1, the new best is learner 2; sums over 2 minibatches."""
        scheme = dataclasses.replace(
            self.scheme, distances_exclude=distances_exclude, distance_estimate="every_minibatch"
        )
        state = self.state(
            best=np.int32(1),
            spread_sums=np.array([2.0, 4.0, 6.0], np.float32),
            change_sums=np.array([20.0, 40.0, 60.0], np.float32),
            num_measured=np.int32(2),
        )
        returns = np.array([[0.0], [1.0], [2.0]])
        after, review = scheme.review(state, returns, np.zeros((5, 2), np.float32), DRAW)
        assert review == {
            "best": 2, "beta": 0.5, "spread": expected_spread, "change": expected_change,
        }  # fmt: skip
        assert (int(after.best), float(after.beta), int(after.num_measured)) == (2, 0.5, 0)
        assert after.spread_sums.tolist() == [0, 0, 0]

    def test_review_measures_at_the_end_of_the_period(self):
        learners = self.scheme.init_learners(jax.random.key(0), self.spec)
        shift = np.array([0.0, 0.5, 1.0], np.float32)
        *first, last = learners.policy.params
        last = {"weight": last["weight"] * 0, "bias": np.arctanh(0.8 * shift)[:, None]}
        policy = dataclasses.replace(learners.policy, params=[*first, last])
        zero = jax.tree.map(lambda leaf: np.zeros_like(leaf), learners.policy)
        state = self.state(
            learners=learners._replace(policy=policy),
            old_policies=zero,
            guide=jax.tree.map(lambda leaf: leaf[0], policy),
            best=np.int32(0),
        )
        returns, observations = np.full((3, 1), np.nan), np.ones((5, 2), np.float32)
        _, review = self.scheme.review(state, returns, observations, DRAW)
        # Actions are 0, 0.4, 0.8: distances to the guide and to the old policies ½ 0.16 and ½ 0.64.
        assert review["spread"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["change"] == pytest.approx((0.08 + 0.32) / 2, rel=1e-5)
        assert review["best"] is None
        assert review["beta"] == 0.5  # 0.2 < max(2 * 0.2, d_min) / 1.5

    def test_policy_minibatches_are_measured_on_a_tenth(self):
        """What `every_minibatch` finds on the first tenth of the states, at policy steps only."""
        fields = {"algorithm": dataclasses.replace(self.scheme.algorithm, batch_size=30)}
        every, few = (
            dataclasses.replace(self.scheme, distance_estimate=estimate, **fields)
            for estimate in ("every_minibatch", "policy_minibatches")
        )
        draw = np.random.default_rng(3)
        learners = self.scheme.init_learners(jax.random.key(0), self.spec)
        state = self.state(guide=jax.tree.map(lambda leaf: 0.5 * leaf[0], learners.policy))
        shapes = {"observation": (3, 30, 2), "action": (3, 30, 1), "reward": (3, 30),
                  "discount": (3, 30), "next_observation": (3, 30, 2)}  # fmt: skip
        batches = Transition(
            **{name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        )
        key = jax.random.key(1)
        after, _ = few.learn(state, batches, key, with_policy=False)
        assert int(after.num_measured) == 0
        after, _ = few.learn(state, batches, key, with_policy=True)
        expected = every._measure_minibatches(
            after._replace(spread_sums=state.spread_sums, change_sums=state.change_sums),
            batches.observation[:, :3],
        )
        np.testing.assert_allclose(after.spread_sums, expected.spread_sums, rtol=1e-5)
        np.testing.assert_allclose(after.change_sums, expected.change_sums, rtol=1e-5)
        assert int(after.num_measured) == 1
        _, review = few.review(after, np.zeros((3, 1)), np.zeros((5, 2), np.float32), DRAW)
        assert review["spread"] == pytest.approx(np.mean(after.spread_sums))

    def test_nobody_is_guided_before_the_first_selection_in_authors(self):
        scheme = dataclasses.replace(self.scheme, guide_from_start=False)
        returns = np.full((3, 1), np.nan)
        _, review = scheme.review(self.state(), returns, np.ones((5, 2), np.float32), DRAW)
        assert (review["best"], review["beta"]) == (None, 1.0)


class TestSnapshots:
    """The guide is a policy that has played a whole episode."""

    scheme = dataclasses.replace(TestP3S.scheme, guide_source="snapshot")

    def state(self) -> P3SState:
        """Learner i's present policy holds i, its actor 10 + i, what it played before 20 + i."""
        start = self.scheme.init(jax.random.key(0), TestP3S.spec)

        def holding(first: int):
            def fill(leaf):
                shape = (-1, *[1] * (leaf.ndim - 1))
                return np.zeros_like(leaf) + np.arange(first, first + 3).reshape(shape)

            return jax.tree.map(fill, self.scheme.policies(start))

        learners = self.scheme.algorithm.with_policy(start.learners, holding(0))
        return start._replace(learners=learners, actors=holding(10), played=holding(20))

    def held(self, policies) -> list[float]:
        leaf = leaves(policies)[0]
        return [float(own.ravel()[0]) for own in leaf]

    def test_an_end_hands_on_what_acted_and_what_acts(self):
        after = self.scheme.end_episodes(self.state(), np.array([False, True, False]))
        assert self.held(after.actors) == [10, 1, 12]
        assert self.held(after.played) == [20, 11, 22]
        assert self.held(self.scheme.acting(after)[0]) == [10, 1, 12]
        assert self.held(self.scheme.policies(after)) == [0, 1, 2]

    def test_the_policy_of_the_best_latest_episode_guides(self):
        returns = np.array([[3.0], [1.0], [np.nan]])
        seen = np.zeros((5, 2), np.float32)
        after, review = self.scheme.review(self.state(), returns, seen, DRAW)
        assert review["best"] == 0
        assert float(leaves(after.guide)[0].ravel()[0]) == 20

    def test_one_policy_plays_an_episode(self):
        """Learners move, their actors wait for the end of the episode: 50 steps in Reacher."""
        training = small_training("Reacher-v5", num_learners=2, guide_source="snapshot")
        training.run(2 * 51)
        before = jax.tree.map(np.array, training.crew.updater.state.actors)
        training.run(2 * 99)
        assert all(map(np.array_equal, leaves(before), leaves(training.crew.updater.state.actors)))
        training.run(2 * 100)
        after = training.crew.updater.state
        assert all(map(np.array_equal, leaves(before), leaves(after.played)))
        assert not any(map(np.array_equal, leaves(before), leaves(after.actors)))
        assert all(
            map(np.array_equal, leaves(training.scheme.policies(after)), leaves(after.actors))
        )
        assert training.last_review["best"] is not None
        training.close()

    def test_what_overlaps_and_what_is_resumed_changes_nothing(self):
        fields = {"guide_source": "snapshot", "updates_per_step": 1}
        config = small_config("Reacher-v5", **fields)
        plain, resumed = (
            Training(config, partial(make_env, config.env), overlap=False) for _ in range(2)
        )
        overlapping = small_training("Reacher-v5", **fields)
        overlapping.run(500)
        plain.run(500)
        assert_same_bits(plain, overlapping)
        ring = overlapping.experience.ring
        resumed.experience.ring.rows[:] = ring.rows
        resumed.experience.ring.num_added = ring.num_added
        resumed.resume(overlapping.snapshot())
        for training in (resumed, overlapping):
            training.run(900)
        assert_same_bits(resumed, overlapping)

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"shards": 2}, "guide_source snapshot is for runs without shards"),
            ({"on_divergence": "replace"}, "is for a guide that is a learner"),
            ({"return_memory": 100}, "leave return_memory out"),
        ],
    )
    def test_what_it_cannot_be_combined_with(self, fields, problem):
        with pytest.raises(UserError, match=problem):
            small_config(guide_source="snapshot", **fields).check()


class TestBounds:
    """Reviews that always want to double beta, or always to halve it, leave it a usable number."""

    def reviews(self, **fields) -> tuple[list[dict], Training]:
        """A few hundred reviews, one after each own step."""
        training = small_training(
            num_learners=2, review_period=1, evaluation_period=0, learners_start="independent",
            **fields,
        )  # fmt: skip
        found = []
        training.run(2 * 320, callback=lambda now: found.append(now.last_review))
        training.close()
        return [review for review in found if review], training

    def check_policies(self, training: Training) -> None:
        policies = leaves(training.scheme.policies(training.crew.updater.state))
        assert all(np.isfinite(leaf).all() for leaf in policies)

    def test_a_radius_of_zero_keeps_beta_finite(self):
        reviews, training = self.reviews(rho=0.0, d_min=0.0)
        # Any spread asks for a doubling; 128 of them overflow float32.
        assert sum(review["spread"] > 0 for review in reviews) > 200
        limit = training.scheme.beta_limit
        betas = [review["beta"] for review in reviews]
        assert np.isfinite(betas).all()
        assert limit <= max(betas) <= 2 * limit
        self.check_policies(training)

    def test_a_huge_radius_keeps_beta_above_zero(self):
        reviews, training = self.reviews(d_min=1e6)
        assert len(reviews) > 200
        limit = training.scheme.beta_limit
        betas = [review["beta"] for review in reviews]
        assert 1 / (2 * limit) <= min(betas) <= 1 / limit
        assert float(training.crew.updater.state.beta) > 0
        self.check_policies(training)
