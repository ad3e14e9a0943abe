"""Recent returns: which of them are new, and how they fade."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.experience.returns import FadingReturns, new_returns, noted
from p3s.types import Episode

NONE = np.nan


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([NONE, NONE, NONE], [NONE, 1.0, 2.0], [NONE, 1.0, 2.0]),
        ([NONE, 1.0, 2.0], [1.0, 2.0, 3.0], [NONE, NONE, 3.0]),
        ([1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [7.0, 8.0, 9.0]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [NONE, NONE, NONE]),
        ([1.0, 2.0, 3.0], [NONE, NONE, 4.0], [NONE, NONE, 4.0]),
        ([0.1, 0.2, 0.3], [0.2, 0.3, 0.3], [NONE, NONE, 0.3]),
    ],
    ids=["first", "one more", "all other", "nothing new", "forgotten", "one of the same value"],
)
def test_what_came_after(before, now, expected):
    found = new_returns(noted(np.array([before])), np.array([now]))
    np.testing.assert_array_equal(found, np.array([expected]))


class TestFading:
    def test_a_return_weighs_less_by_its_age(self):
        returns = FadingReturns(2, memory=1000)
        assert np.isnan(returns.values).all()
        returns.add(Episode(0, 10.0, 1000))
        returns.add(Episode(0, 40.0, 1000))
        older = np.exp(-1.0)
        expected = (older * 10.0 + 40.0) / (older + 1.0)
        np.testing.assert_allclose(returns.values[0, 0], expected)
        assert np.isnan(returns.values[1, 0])

    def test_short_episodes_are_averaged(self):
        returns = FadingReturns(1, memory=10**9)
        for total in (1.0, 2.0, 6.0):
            returns.add(Episode(0, total, 20))
        np.testing.assert_allclose(returns.values, [[3.0]], rtol=1e-6)

    def test_a_snapshot_continues(self):
        one, other = FadingReturns(1, 100), FadingReturns(1, 100)
        one.add(Episode(0, 5.0, 50))
        other.resume(one.snapshot())
        for returns in (one, other):
            returns.add(Episode(0, 9.0, 50))
        np.testing.assert_array_equal(one.values, other.values)

    def test_what_is_forgotten_weighs_nothing(self):
        returns = FadingReturns(1, 100)
        returns.add(Episode(0, 5.0, 50))
        returns.forget([0])
        assert np.isnan(returns.values).all()
        returns.add(Episode(0, 9.0, 50))
        np.testing.assert_array_equal(returns.values, [[9.0]])
