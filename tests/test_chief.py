"""The chief's rules on numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p3s import chief

NONE = np.nan


class TestBestLearner:
    def test_highest_mean_of_recent_returns(self):
        recent = np.array([[1.0, 2.0, 3.0], [0.0, 9.0, 0.0], [2.0, 2.0, 1.0]])
        assert chief.mean_returns(recent).tolist() == pytest.approx([2.0, 3.0, 5 / 3])
        assert chief.best_learner(recent) == 1

    def test_tie_goes_to_the_lowest_index(self):
        assert chief.best_learner(np.array([[1.0], [4.0], [4.0]])) == 1

    def test_learner_without_an_episode_cannot_be_best(self):
        recent = np.array([[NONE, NONE], [NONE, -500.0], [-600.0, -400.5]])
        assert chief.best_learner(recent) == 1
        assert np.isnan(chief.mean_returns(recent)[0])

    def test_nobody_has_an_episode(self):
        assert chief.best_learner(np.full((3, 10), NONE)) is None


class TestAdaptBeta:
    """max(rho * change, d_min) = 0.2 throughout: thresholds at 0.3 and 0.2 / 1.5."""

    rule = {"rho": 2.0, "d_min": 0.05}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("spread", "expected"),
        [
            (0.31, 2.0),
            (0.2 * 1.5, 1.0),
            (0.2, 1.0),
            (0.2 / 1.5, 1.0),
            (0.13, 0.5),
        ],
    )
    def test_thresholds(self, spread: float, expected: float):
        assert chief.adapt_beta(1.0, spread, 0.1, **self.rule) == expected

    def test_d_min_is_the_smallest_radius(self):
        assert chief.search_radius(0.001, **self.rule) == 0.05
        assert chief.search_radius(0.1, **self.rule) == 0.2
        assert chief.adapt_beta(1.0, 0.04, 0.001, **self.rule) == 1.0
        assert chief.adapt_beta(1.0, 0.02, 0.001, **self.rule) == 0.5

    def test_limit(self):
        wide, narrow = 100.0, 0.0
        assert chief.adapt_beta(512.0, wide, 0.1, **self.rule, limit=1000) == 1024
        assert chief.adapt_beta(1024.0, wide, 0.1, **self.rule, limit=1000) == 1024
        assert chief.adapt_beta(2**-9, narrow, 0.1, **self.rule, limit=1000) == 2**-10
        assert chief.adapt_beta(2**-10, narrow, 0.1, **self.rule, limit=1000) == 2**-10
        assert chief.adapt_beta(2.0**20, wide, 0.1, **self.rule) == 2.0**21

    @given(
        st.floats(1e-6, 1e6), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 10),
        st.floats(1e-3, 1),
    )  # fmt: skip
    def test_moves_towards_the_radius(self, beta, spread, change, rho, d_min):
        new = chief.adapt_beta(beta, spread, change, rho, d_min)
        radius = chief.search_radius(change, rho, d_min)
        assert new in (beta, 2 * beta, beta / 2)
        assert (new > beta) == (spread > radius * 1.5)
        assert (new < beta) == (spread < radius / 1.5)


def test_mean_over_others():
    values = np.array([1.0, 2.0, 6.0])
    assert chief.mean_over_others(values, 2) == 1.5
    assert chief.mean_over_others(values, None) == 3.0
    assert chief.mean_over_others(values[:1], 0) is None
