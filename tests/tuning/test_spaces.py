"""What is searched: from types, bounds, declared sets and files; and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import field_values, resolve, resolve_spec
from p3s.config.spec import RunSpec
from p3s.errors import UserError
from p3s.fields.types import Count, CountOrZero, Decay, Positive, Share
from p3s.schemes import SCHEMES
from p3s.tuning.asked import search_spaces
from p3s.tuning.spaces import (
    BY_ALGORITHM,
    BY_SCHEME,
    RANGES,
    Choices,
    Range,
    default_names,
    made_from,
    space_from_json,
)

SPEC = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000})


@pytest.mark.parametrize(
    ("expected", "default", "space"),
    [
        (Positive, 0.01, Range(0.001, 0.1, log=True)),
        (Positive | None, 2.0, Range(0.2, 20.0, log=True)),
        (Share, 0.3, Range(0, 1)),
        (Count, 100, Range(25, 400, log=True, whole=True)),
        (Count, 2, Range(1, 8, log=True, whole=True)),
        (bool, True, Choices((False, True))),
        (CountOrZero, 0, None),
        (Positive | None, None, None),
        (str, "auto", None),
        (tuple[Count, ...], (64, 64), None),
    ],
)
def test_a_space_follows_from_type_bounds_and_default(expected, default, space):
    made = made_from(expected, default)
    if isinstance(space, Range):
        assert made.low == pytest.approx(space.low)
        assert made.high == pytest.approx(space.high)
        assert (made.log, made.whole) == (space.log, space.whole)
    else:
        assert made == space


def test_an_end_that_is_excluded_is_not_drawn():
    assert made_from(Decay, 0.9).high < 1


@pytest.mark.parametrize(
    "space", [Range(1e-5, 1.0, log=True), Range(1, 8, whole=True), Choices((1, [2, 3], "a"))]
)
def test_a_space_is_read_as_it_was_written(space):
    assert space_from_json(space.to_json()) == space


def pairs():
    for scheme in SCHEMES:
        for algorithm, made in ALGORITHMS.items():
            if made.on_policy == (scheme == "rollout"):
                yield scheme, algorithm


@pytest.mark.parametrize(("scheme", "algorithm"), pairs())
def test_every_scheme_with_every_algorithm_has_a_default_set(scheme, algorithm):
    discrete = ALGORITHMS[algorithm].actions == "discrete"
    env = "CartPole-v1" if discrete else "Pendulum-v1"
    if resolve(env, scheme, algorithm).scheme.problem() is not None:
        pytest.skip("they do not go together")
    spaces = search_spaces(RunSpec(env, scheme, algorithm), [])
    assert "learning_rate" in spaces or "value_learning_rate" in spaces
    assert list(spaces) == default_names(resolve(env, scheme, algorithm))


def test_the_declared_sets_name_fields_that_exist():
    for registry, sets in ((ALGORITHMS, BY_ALGORITHM), (SCHEMES, BY_SCHEME)):
        for owner, names in sets.items():
            known = {field.name for field in dataclasses.fields(registry[owner])}
            assert set(names) <= known, owner
    everything = {
        field.name
        for made in (*ALGORITHMS.values(), *SCHEMES.values())
        for field in dataclasses.fields(made)
    }
    assert RANGES.keys() <= everything


FILE = """# what matters
[search]
learning_rate = {low = 1e-4, high = 1e-2, log = true}
batch_size = [32, 64]
hidden_sizes = [[16], [32, 32]]
n_step = {low = 1, high = 3}
beta = true
"""


def test_a_file_has_ranges_and_choices(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(FILE)
    spaces = search_spaces(SPEC, [str(path), "rho"])
    assert spaces == {
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "batch_size": Choices((32, 64)),
        "hidden_sizes": Choices(([16], [32, 32])),
        "n_step": Range(1, 3, whole=True),
        "beta": RANGES["beta"],
        "rho": RANGES["rho"],
    }
    fields = {"hidden_sizes": [32, 32], "n_step": 3}
    config = resolve_spec(dataclasses.replace(SPEC, fields=fields))
    assert field_values(config.algorithm)["hidden_sizes"] == (32, 32)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("learning_rat = true", "did you mean learning_rate"),
        ("lr = true", "lr is called learning_rate here"),
        ("minibatch_size = true", "minibatch_size is a field of ppo, not of scheme p3s with td3"),
        ("steps = [1000, 2000]", "steps is the same for all trials"),
        ("learning_rate = {low = -1.0, high = 1.0}", "learning_rate must be above 0, not -1.0"),
        ("batch_size = [32, 0]", "batch_size must be at least 1, not 0"),
        ('batch_size = [32, "many"]', "batch_size: expected a whole number, not"),
        ("batch_size = {low = 1.5, high = 3}", "batch_size: low and high must be whole numbers"),
        ("learning_rate = {low = 1e-2, high = 1e-3}", "low must be below high, not 0.01 and 0.001"),
        ("rho = {low = 0, high = 1, log = true}", "low must be above 0 where log is true, not 0"),
        ("learning_rate = {low = 1e-2}", "learning_rate: low and high must be numbers"),
        ("learning_rate = {low = 0.1, high = 1, step = 2}", "and maybe log = true, no more"),
        ("learning_rate = 3", "must be a list of choices, {low = ..., high = ...} or true"),
        ("network = true", "network has no range of its own: give one in a file"),
    ],
)  # fmt: skip
def test_an_error_names_file_and_line(tmp_path, line, message):
    path = tmp_path / "space.toml"
    path.write_text(f"# mine\n[search]\nd_min = [0.1]\n{line}\n")
    with pytest.raises(UserError) as error:
        search_spaces(SPEC, [str(path)])
    assert str(error.value).startswith(f"{path}:4: ")
    assert message in str(error.value)


def test_an_error_on_the_command_line_names_the_field():
    with pytest.raises(UserError, match="unknown field 'betta': did you mean beta"):
        search_spaces(SPEC, ["betta"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate = [1e-3]", "{path}:1: fields are in one table, [search]"),
        ("", "{path} has no table [search]"),
        ("[search", "{path}:1: invalid TOML"),
        ("[search]", "{path}:1: fields are in one table, [search]"),
    ],
)
def test_a_file_without_spaces(tmp_path, text, message):
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        search_spaces(SPEC, [str(path)])
    assert str(error.value).startswith(message.format(path=path))
