"""PB2: the Gaussian process on numbers worked by hand, bounds, and what the chief notes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.experience.returns import NONE
from p3s.schemes import PB2
from p3s.schemes.pb2 import (
    GRID,
    History,
    Points,
    Smoothness,
    kernel,
    log_likelihood,
    note_gains,
    posterior,
    standardize,
    start_over,
    upper_bounds,
)
from p3s.types import EnvSpec
from tests.helpers import problem_of

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)
SMOOTH = Smoothness(length=0.5, forgetting=0.19, noise=0.1)


def at(times, *places) -> Points:
    return Points(np.array(times), np.array(places, float).reshape(len(times), -1))


NOWHERE = Points(np.zeros(0, int), np.zeros((0, 1)))


class TestProcess:
    def test_kernel(self):
        """exp(-0.5² / (2 · 0.5²)) = exp(-½), times 0.81^(2/2) for two reviews between them."""
        found = kernel(at([3], 0.0), at([3, 5], 0.0, 0.5), SMOOTH)
        np.testing.assert_allclose(found, [[1.0, 0.81 * np.exp(-0.5)]])

    def test_posterior_of_one_point(self):
        """k / (1 + noise) y and 1 - k² / (1 + noise), k = exp(-½) · 0.9."""
        mean, variance = posterior(at([4], 0.2), np.array([2.0]), at([5], 0.7), SMOOTH)
        k = np.exp(-0.5) * 0.9
        np.testing.assert_allclose([mean[0], variance[0]], [2 * k / 1.1, 1 - k**2 / 1.1])

    def test_posterior_of_many_points(self):
        """Against the same by an inverse matrix, entry by entry."""
        draw = np.random.default_rng(0)
        seen = Points(draw.integers(1, 6, 7), draw.random((7, 2)))
        asked = Points(draw.integers(6, 8, 3), draw.random((3, 2)))
        gains = draw.normal(size=7)

        def k(one, i, other, j):
            square = sum((one.places[i] - other.places[j]) ** 2)
            return np.exp(-square / 0.5) * 0.9 ** abs(one.times[i] - other.times[j])

        matrix = np.array([[k(seen, i, seen, j) for j in range(7)] for i in range(7)])
        inverse = np.linalg.inv(matrix + 0.1 * np.eye(7))
        across = np.array([[k(asked, i, seen, j) for j in range(7)] for i in range(3)])
        mean, variance = posterior(seen, gains, asked, SMOOTH)
        np.testing.assert_allclose(mean, across @ inverse @ gains, rtol=1e-9)
        np.testing.assert_allclose(variance, 1 - np.diag(across @ inverse @ across.T), rtol=1e-9)
        _, log_det = np.linalg.slogdet(matrix + 0.1 * np.eye(7))
        expected = -0.5 * (gains @ inverse @ gains + log_det + 7 * np.log(2 * np.pi))
        assert log_likelihood(seen, gains, SMOOTH) == pytest.approx(expected, rel=1e-9)

    def test_without_points_it_is_the_prior(self):
        mean, variance = posterior(NOWHERE, np.zeros(0), at([1, 2], 0.0, 1.0), SMOOTH)
        assert mean.tolist() == [0, 0]
        assert variance.tolist() == [1, 1]
        assert [log_likelihood(NOWHERE, np.zeros(0), each) for each in GRID[:2]] == [0, 0]

    def test_standardized_gains(self):
        assert standardize(np.array([1.0, 3.0])).tolist() == [-1, 1]
        assert standardize(np.array([0.0] * 9 + [10.0])).max() == 2
        assert standardize(np.array([5.0, 5.0])).tolist() == [0, 0]
        assert standardize(np.zeros(0)).size == 0


class TestUpperBounds:
    seen = at([1] * 10, *[0.0] * 9, 1.0)
    gains = np.array([-1.0] * 9 + [1.0])
    asked = at([1, 1], 1.0, 0.5)

    def bounds(self, optimism: float, tried: Points = NOWHERE) -> np.ndarray:
        smooth = Smoothness(0.1, 0.0, 0.1)
        return upper_bounds(self.seen, self.gains, tried, self.asked, smooth, optimism)

    def test_greedy_takes_the_best_known_and_optimism_the_unknown(self):
        """Far from all points the bound is kappa = sqrt(optimism log(0.4 · 10))."""
        greedy, hopeful = self.bounds(0.0), self.bounds(5.0)
        assert greedy[0] == pytest.approx(1 / 1.1)
        assert greedy[1] == pytest.approx(0, abs=1e-4)
        assert np.argmax(greedy) == 0
        assert hopeful[1] == pytest.approx(np.sqrt(5 * np.log(4)), rel=1e-4)
        assert np.argmax(hopeful) == 1

    def test_what_others_try_is_no_longer_uncertain(self):
        both = self.bounds(5.0), self.bounds(5.0, at([1], 0.5))
        assert both[1][0] == pytest.approx(both[0][0], rel=1e-4)
        assert both[1][1] == pytest.approx(both[0][1] * np.sqrt(0.1 / 1.1), rel=1e-3)


class TestHistory:
    def empty(self, learners: int, memory: int = 2) -> History:
        shape = (learners, memory)
        none = np.zeros(shape, np.float32)
        start, since = np.zeros(learners, np.float32), np.zeros(learners, np.int32)
        returns = np.full((learners, 1), NONE, np.float32)
        times = np.zeros(shape, np.int32)
        return History(times, none[..., None], none, none, start, since, returns)

    def test_gains_count_from_the_last_known_mean(self):
        positions = np.array([[0.25], [0.5]])
        history = self.empty(2)
        for review, means in enumerate([(1.0, np.nan), (4.0, 2.0), (np.nan, 5.0), (8.0, 6.0)], 1):
            history = note_gains(history, positions, np.array(means), review)
            history = start_over(history, np.array(means), np.arange(2), review)
        assert history.times.tolist() == [[2, 4], [3, 4]]
        assert history.gains.tolist() == [[3, 2], [3, 1]]  # 8 - 4 took two reviews
        assert history.before.tolist() == [[1, 4], [2, 5]]
        assert history.positions[..., 0].tolist() == [[0.25, 0.25], [0.5, 0.5]]
        assert history.since.tolist() == [4, 4]
        assert history.start.tolist() == [8, 6]


class TestBounds:
    def scheme(self, **fields) -> PB2:
        return PB2(algorithm=TINY, num_learners=4, **fields)

    def test_default_is_a_tenth_to_ten_times(self):
        assert self.scheme().bounds_of("learning_rate") == pytest.approx((1e-4, 1e-2))
        assert self.scheme().bounds_of("discount_factor") == pytest.approx((0.9, 0.999))
        momentum = PB2(algorithm=TINY, perturbed=("adam_momentum",))
        assert momentum.bounds_of("adam_momentum") == pytest.approx((0.0, 0.99), abs=1e-9)

    def test_positions_are_logarithms(self):
        scheme = self.scheme(lower_bounds=(1e-4, 0.1, 0.9), upper_bounds=(1e-2, 0.4, 0.999))
        assert scheme.position_of("learning_rate", 1e-3) == pytest.approx(0.5)
        assert scheme.position_of("discount_factor", 0.99) == pytest.approx(0.5)
        assert scheme.value_at("exploration_noise", 0.5) == pytest.approx(0.2)
        for name in scheme.perturbed:
            assert scheme.position_of(name, scheme.value_at(name, 0.3)) == pytest.approx(0.3)

    def test_negative_fields(self):
        scheme = PB2(algorithm=ALGORITHMS["sac"](), perturbed=("target_entropy",))
        low, high = scheme.bounds_of("target_entropy")
        assert (low, high) == pytest.approx((-10, -0.1))
        assert scheme.position_of("target_entropy", -1.0) == pytest.approx(0.5)

    def test_problems(self):
        assert "lower_bounds needs a number for each of" in problem_of(
            self.scheme(lower_bounds=(1.0,))
        )
        one = {"perturbed": ("learning_rate",)}
        crossed = self.scheme(**one, lower_bounds=(1e-2,), upper_bounds=(1e-3,))
        assert "cannot search learning_rate between 0.01 and 0.001" in problem_of(crossed)
        horizon = self.scheme(perturbed=("discount_factor",), upper_bounds=(1.0,))
        assert "cannot search discount_factor" in problem_of(horizon)
        wide = PB2(algorithm=ALGORITHMS["td3"](target_rate=0.5), perturbed=("target_rate",))
        assert "target_rate must be between 0 and 1" in problem_of(wide)
        assert not problem_of(self.scheme())


class TestReview:
    returns = np.array([[1.0], [2.0], [0.0], [3.0]])

    def reviewed(self, seed: int = 0, **fields):
        scheme = PB2(
            algorithm=TINY,
            num_learners=4,
            learners_start="independent",
            memory=3,
            recent_episodes=1,
            **fields,
        )
        state, reviews = scheme.init(jax.random.key(0), SPEC), []
        for round_ in range(3):
            rng = np.random.default_rng(seed + round_)
            state, review = scheme.review(state, self.returns * (round_ + 1), np.zeros((1, 2)), rng)
            reviews.append(review)
        return scheme, state, reviews

    def test_copies_start_within_the_bounds_and_others_keep_theirs(self):
        scheme, state, reviews = self.reviewed()
        assert [review["copies"] for review in reviews] == [[[3, 2]]] * 3
        assert [review["num_points"] for review in reviews] == [0, 4, 8]
        for name, own in state.own_fields.items():
            low, high = np.float32(scheme.bounds_of(name))
            assert (own >= low).all()
            assert (own <= high).all()
            tried = np.array([review["own_fields"][name] for review in reviews])
            assert (tried[:, [0, 1, 3]] == tried[0, [0, 1, 3]]).all()
            assert len(set(tried[:, 2])) == 3
        gains = np.asarray(state.history.gains)
        assert gains[:, 1:].tolist() == [[1, 1], [2, 2], [-3, -6], [3, 3]]
        assert int(state.num_reviews) == 3

    def test_gains_are_those_of_the_episodes_between_reviews(self):
        """Learner 3 plays 10 and 30, then 50: a gain of 50 - 20. Learner 2 copies it, plays 60, and
        has gained 10; from the mean of 30 and 50 it would be 20."""
        scheme = PB2(algorithm=TINY, num_learners=4, memory=3, recent_episodes=2)
        state, none = scheme.init(jax.random.key(0), SPEC), np.nan
        for round_, (second, third) in enumerate(
            [
                ([none, none], [10.0, 30.0]),
                ([none, 5.0], [30.0, 50.0]),
                ([none, 60.0], [50.0, 40.0]),
            ]
        ):
            windows = np.array([[none, none], [none, 8.0], second, third])
            rng = np.random.default_rng(round_)
            state, review = scheme.review(state, windows, np.zeros((1, 2)), rng)
            if round_ == 1:
                assert review["copies"] == [[3, 2]]
        gains, before = np.asarray(state.history.gains), np.asarray(state.history.before)
        assert gains[2].tolist() == [0, 0, 10]
        assert before[2].tolist() == [0, 0, 50]
        assert gains[3].tolist() == [0, 30, -10]
        assert before[3].tolist() == [0, 20, 50]

    def test_draws_come_from_the_given_stream_alone(self):
        (_, one, _), (_, same, _), (_, other, _) = (self.reviewed(seed) for seed in (0, 0, 9))
        assert jax.tree.all(jax.tree.map(np.array_equal, one, same))
        assert not jax.tree.all(jax.tree.map(np.array_equal, one.own_fields, other.own_fields))

    def test_nothing_is_noted_before_the_first_episode(self):
        scheme = PB2(algorithm=TINY, num_learners=4)
        state = scheme.init(jax.random.key(0), SPEC)
        unknown = np.full((4, 2), np.nan)
        after, review = scheme.review(state, unknown, np.zeros((1, 2)), np.random.default_rng(0))
        assert review["copies"] == []
        assert jax.tree.all(jax.tree.map(np.array_equal, after, state))


def test_a_value_that_pays_is_found():
    """Gains fall off from learning rate 1e-3 on both sides; chosen ones come to lie there."""
    scheme = PB2(
        algorithm=TINY, num_learners=8, perturbed=("learning_rate",), lower_bounds=(1e-5,),
        upper_bounds=(1e-1,), optimism=0.05, recent_episodes=1,
    )  # fmt: skip
    state, means, chosen = scheme.init(jax.random.key(1), SPEC), np.zeros(8), []
    for number in range(15):
        position = scheme.position_of("learning_rate", state.own_fields["learning_rate"])
        means = means + 1 - 8 * (position - 0.5) ** 2
        rng = np.random.default_rng(number)
        state, review = scheme.review(state, means[:, None], np.zeros((1, 2)), rng)
        for source, taker in review["copies"]:
            means[taker] = means[source]
            chosen.append(review["own_fields"]["learning_rate"][taker])
    late = scheme.position_of("learning_rate", np.array(chosen[-10:]))
    assert np.abs(late - 0.5).mean() < 0.1
