"""Every bounded field of algorithms, schemes and runs: its bounds are enforced.

A field is tested once for each class that declares it, not again for those that inherit it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from p3s.algorithms import ALGORITHMS, PPO, TD3
from p3s.config.options import RunOptions
from p3s.errors import UserError
from p3s.fields.types import Bounds, bare, check_fields, field_types
from p3s.schemes import SCHEMES


def instance(group: type) -> Any:
    if group not in SCHEMES.values():
        return group()
    return group(algorithm=PPO() if group.name == "rollout" else TD3())


GROUPS = [instance(group) for group in (RunOptions, *ALGORITHMS.values(), *SCHEMES.values())]


def bounded(expected: Any) -> Iterator[tuple[Bounds, type, bool]]:
    """Bounds within a type, the numbers that they are for, and whether those are in a tuple."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        yield from ((b, bare(expected), False) for b in arguments[1:] if isinstance(b, Bounds))
    elif origin in (Union, types.UnionType):
        for choice in arguments:
            yield from bounded(choice)
    elif origin is tuple:
        yield from ((bounds, number, True) for bounds, number, _ in bounded(arguments[0]))


def declarations() -> Iterator[tuple[str, Any, str, Any]]:
    """Each declaration of a field: its label, one that has the field, the field's name and type."""
    seen = set()
    for group in GROUPS:
        bases = type(group).__mro__
        for name, expected in field_types(type(group)).items():
            owner = next(base for base in bases if name in inspect.get_annotations(base))
            if (owner, name) not in seen:
                seen.add((owner, name))
                yield f"{owner.__name__}-{name}", group, name, expected


DECLARED = list(declarations())


def cases() -> list:
    return [
        pytest.param(group, name, bounds, number, in_tuple, id=label)
        for label, group, name, expected in DECLARED
        for bounds, number, in_tuple in bounded(expected)
    ]


def step(value: float, number: type, direction: int) -> float:
    """The next number in this direction."""
    if number is int:
        return int(value) + direction
    return math.nextafter(value, direction * math.inf)


def allowed(bounds: Bounds, number: type) -> list:
    """The numbers at the bounds that are just within them."""
    ends = [(bounds.least, 0), (bounds.most, 0), (bounds.above, 1), (bounds.below, -1)]
    return [
        step(end, number, direction) if direction else number(end)
        for end, direction in ends
        if end is not None
    ]


def refused(bounds: Bounds, number: type) -> list:
    """The numbers at the bounds that are just outside, and those that are not numbers."""
    ends = [(bounds.least, -1), (bounds.most, 1), (bounds.above, 0), (bounds.below, 0)]
    outside = [
        step(end, number, direction) if direction else number(end)
        for end, direction in ends
        if end is not None
    ]
    return outside + ([math.nan, math.inf, -math.inf] if number is float else [])


@pytest.mark.parametrize(("group", "name", "bounds", "number", "in_tuple"), cases())
def test_bounds(group, name, bounds, number, in_tuple):
    def changed(value):
        return dataclasses.replace(group, **{name: (value,) if in_tuple else value})

    for value in allowed(bounds, number):
        check_fields(changed(value))
    for value in refused(bounds, number):
        with pytest.raises(UserError) as caught:
            check_fields(changed(value))
        each = " each" if in_tuple else ""
        shown = (value,) if in_tuple else value
        expected = bounds if math.isfinite(value) else "a finite number"
        assert str(caught.value) == f"{name} must be {expected}{each}, not {shown}"


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: type(group).__name__)
def test_defaults_are_within_their_bounds(group):
    check_fields(group)


def test_every_field_is_declared_somewhere():
    """Nothing escapes for being inherited: together the declarations are the fields of all."""
    fields = {(name, str(t)) for group in GROUPS for name, t in field_types(type(group)).items()}
    assert {(name, str(expected)) for _, _, name, expected in DECLARED} == fields


def test_whole_numbers_have_bounds():
    for label, _, _, expected in DECLARED:
        if bare(expected) is int:
            assert list(bounded(expected)), label


def test_numbers_without_bounds_are_finite():
    for _, group, name, expected in DECLARED:
        if expected is float:
            with pytest.raises(UserError, match=f"{name} must be a finite number, not inf"):
                check_fields(dataclasses.replace(group, **{name: math.inf}))


def test_choices_are_checked():
    for _, group, name, expected in DECLARED:
        if get_origin(expected) is Literal:
            with pytest.raises(UserError, match=f'^{name} must be ".*", not nonsense$'):
                check_fields(dataclasses.replace(group, **{name: "nonsense"}))


def test_bounds_in_words():
    for bounds, words in (
        (Bounds(least=1), "at least 1"),
        (Bounds(least=0, most=1), "between 0 and 1"),
        (Bounds(least=0, below=1), "at least 0 and below 1"),
        (Bounds(above=0, most=0.5), "above 0 and at most 0.5"),
    ):
        assert str(bounds) == words


def test_a_number_or_a_word():
    scheme = SCHEMES["p3s"](algorithm=TD3())
    for value in (1, 7, 0.25, "N"):
        check_fields(dataclasses.replace(scheme, updates_per_step=value))
    for value in (0, -3):
        with pytest.raises(UserError, match="updates_per_step must be at least 1"):
            check_fields(dataclasses.replace(scheme, updates_per_step=value))
    with pytest.raises(UserError, match="at least 1e-06 and below 1, not 1"):
        check_fields(dataclasses.replace(scheme, updates_per_step=1.5))
    with pytest.raises(UserError, match='a whole number or a number or "N", not M'):
        check_fields(dataclasses.replace(scheme, updates_per_step="M"))
