"""Values from users, converted to the type of their field."""

from __future__ import annotations

import pytest

from p3s.fields.types import Mismatch, convert


@pytest.mark.parametrize(
    ("value", "expected", "result"),
    [
        (3, int, 3),
        (3, float, 3.0),
        ([4, 3], tuple[int, ...], (4, 3)),
        (2, int | str, 2),
        (True, bool, True),
        (True, int, None),
        (1.5, int, None),
        ("a", float, None),
        ([1, "x"], tuple[int, ...], None),
        ([1], int, None),
    ],
)
def test_values_of_a_type(value, expected, result):
    if result is None:
        with pytest.raises(Mismatch, match="expected"):
            convert(value, expected)
    else:
        converted = convert(value, expected)
        assert (converted, type(converted)) == (result, type(result))
