"""MF-PBT: who continues from whom, whose hyper-parameters travel, and what a review does."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.schemes import MFPBT
from p3s.schemes.mf_pbt import Moves, evolve
from p3s.schemes.pbt import perturb
from p3s.types import EnvSpec
from tests.helpers import problem_of, small_training

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)
MEANS = np.array([5.0, 1, 3, 2, 9, 4, 7, 0])
"""Ranks: 0, 2, 3, 1 in the first group and 4, 6, 5, 7 in the second."""


class TestByHand:
    def test_only_the_group_that_is_due(self):
        """Loser 1 takes after winner 0. Open 3 takes after 4, values too: its group is slower."""
        moves = evolve(MEANS, (1, 10), review=1)
        assert moves == Moves([0, 0, 2, 4, 4, 5, 6, 7], [0, 0, 2, 4, 4, 5, 6, 7], [[4, 3]])

    def test_both_groups(self):
        """Loser 7 takes after 4. Open 5 takes after 0, whose group is greedier: values of 4."""
        moves = evolve(MEANS, (1, 10), review=10)
        sources, values_from = [0, 0, 2, 4, 4, 0, 6, 4], [0, 0, 2, 4, 4, 4, 6, 4]
        assert moves == Moves(sources, values_from, [[4, 3], [0, 5]])

    def test_groups_alike_give_their_values(self):
        moves = evolve(MEANS, (2, 2), review=2)
        assert moves.sources == moves.values_from == [0, 0, 2, 4, 4, 0, 6, 4]
        assert evolve(MEANS, (2, 2), review=3).sources == list(range(8))

    def test_nobody_better_outside(self):
        """The best of the first group, 4 instead of 5, is not better than open 5."""
        means = np.array([4.0, 1, 3, 2, 9, 4, 7, 0])
        moves = evolve(means, (10, 1), review=1)
        assert moves == Moves([0, 1, 2, 3, 4, 5, 6, 4], [0, 1, 2, 3, 4, 5, 6, 4], [])

    def test_the_next_one_looks_at_the_same_learner(self):
        """Open 4 (40) is better than 8 (35), the best outside; open 5 (30) is not."""
        means = np.array([80.0, 70, 60, 50, 40, 30, 20, 10, 35, 25, 6, 5, 4, 3, 2, 1])
        moves = evolve(means, (1, 10), review=1)
        assert moves.sources[:8] == [0, 1, 2, 3, 4, 8, 0, 1]
        assert moves.migrations == [[8, 5]]

    def test_who_was_taken_is_not_taken_again(self):
        """Open 4 takes after 8; 9 (25) is not better than open 5 (30)."""
        means = np.array([80.0, 70, 60, 50, 34, 30, 20, 10, 35, 25, 6, 5, 4, 3, 2, 1])
        assert evolve(means, (1, 10), review=1).sources[:8] == [0, 1, 2, 3, 8, 5, 0, 1]
        means[9] = 31
        assert evolve(means, (1, 10), review=1).sources[:8] == [0, 1, 2, 3, 8, 9, 0, 1]

    def test_a_group_waits_for_returns(self):
        """Learner 6 has none: its group waits, and it cannot migrate."""
        means = MEANS.copy()
        means[6] = np.nan
        moves = evolve(means, (1, 1), review=1)
        assert moves.sources == [0, 0, 2, 4, 4, 5, 6, 7]
        means[4] = np.nan
        assert evolve(means, (1, 1), review=2).migrations == [[5, 3]]


@pytest.mark.parametrize("seed", range(30))
def test_nobody_who_is_copied_is_overwritten(seed):
    """So copies can be made in any order."""
    rng = np.random.default_rng(seed)
    periods = tuple(rng.integers(1, 3, size=int(rng.integers(2, 5))).tolist())
    means = rng.integers(0, 20, 4 * len(periods) * int(rng.integers(1, 4))).astype(float)
    moves = evolve(means, periods, review=2)
    assert all(moves.sources[source] == source for source in moves.sources)
    assert all(moves.values_from[source] == source for source in moves.values_from)


def test_a_review():
    scheme = MFPBT(algorithm=TINY, learners_start="independent", group_periods=(1, 2))
    before = scheme.init(jax.random.key(0), SPEC)
    draw, states, reviews = np.random.default_rng(0), [before], []
    for _ in range(2):
        nothing = np.zeros((5, 2), np.float32)
        state, review = scheme.review(states[-1], MEANS[:, None], nothing, draw)
        states.append(state)
        reviews.append(review)
    first, second = reviews
    assert (first["review"], second["review"]) == (1, 2)
    assert first["copies"] == [[0, 1], [4, 3]]
    assert first["migrations"] == [[4, 3]]
    assert second["copies"] == [[0, 1], [4, 3], [0, 5], [4, 7]]
    assert second["migrations"] == [[4, 3], [0, 5]]
    assert scheme.outdated(first) == [1, 3]
    assert second["best"] == 4
    sources = [0, 0, 2, 4, 4, 0, 6, 4]
    for leaf, old in zip(
        jax.tree.leaves(states[2].learners), jax.tree.leaves(states[1].learners), strict=True
    ):
        assert np.array_equal(leaf, np.asarray(old)[sources])
    for name, values in states[2].own_fields.items():
        old, new = np.asarray(states[1].own_fields[name]), np.asarray(values)
        assert np.array_equal(new[[0, 2, 3, 4, 5, 6]], old[[0, 2, 4, 4, 4, 6]])
        for loser, winner in ((1, 0), (7, 4)):
            options = [perturb(name, old[winner], factor) for factor in (1.25, 0.8)]
            assert np.isclose(float(new[loser]), options, rtol=1e-6).any()


def test_reviews_are_counted_over_a_resume():
    fields = {"scheme": "mf_pbt", "review_period": 25, "group_periods": (1, 3)}
    training = small_training(evaluation_period=0, **fields)
    training.run(8 * 50)
    assert training.last_review["review"] == 2
    again = small_training(evaluation_period=0, **fields)
    again.crew.updater.resume(training.crew.updater.snapshot())
    assert int(again.crew.updater.state.num_reviews) == 2


def test_sizes():
    assert problem_of(MFPBT(algorithm=TINY)) == ""
    assert problem_of(MFPBT(algorithm=TINY, num_learners=24, group_periods=(1, 5, 9))) == ""
    assert "at least 2 groups (group_periods), not 1" in problem_of(
        MFPBT(algorithm=TINY, group_periods=(1,))
    )
    assert "multiple of 12, not 16" in problem_of(
        MFPBT(algorithm=TINY, num_learners=16, group_periods=(1, 5, 9))
    )
