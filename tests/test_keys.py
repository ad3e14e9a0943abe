"""Random streams by name."""

from __future__ import annotations

from p3s import keys


def test_streams_do_not_depend_on_call_order():
    first = keys.generator(1, "a", 5).random(3)
    keys.generator(1, "b", 5).random(3)
    assert (keys.generator(1, "a", 5).random(3) == first).all()
    for other in (keys.generator(2, "a", 5), keys.generator(1, "b", 5), keys.generator(1, "a", 6)):
        assert (other.random(3) != first).all()
