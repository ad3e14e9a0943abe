"""Recent returns: which of them are new."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.experience.returns import new_returns, noted

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
