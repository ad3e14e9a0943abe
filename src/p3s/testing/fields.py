"""No field is dead: what an algorithm or a scheme does is compared for other values of each."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.algorithms import Algorithm
from p3s.algorithms.off_policy import OffPolicy
from p3s.fields.schedules import Rate
from p3s.fields.types import field_types
from p3s.schemes.base import Scheme
from p3s.testing.cases import REVIEWS, ROWS, AlgorithmCase, SchemeCase
from p3s.testing.programs import (
    leaves,
    others,
    random_batch,
    require,
    stack,
    traced,
)
from p3s.types import EnvSpec, Guide, Learner

USED_BY_THE_LOOP = (
    "batch_size",
    "policy_period",
    "n_step",
    "normalize_observations",
    "normalize_rewards",
    "scale_images",
    "image_axes",
)
"""Fields that no method of an algorithm need look at, or only where observations are images."""


def check_algorithm_fields(case: AlgorithmCase) -> None:
    """Every field changes something: the program, and numbers what comes out of it too."""
    made = case.algorithm
    numbers: dict[str, float] = {}
    for field in dataclasses.fields(made):
        if field.name in USED_BY_THE_LOOP:
            continue
        moved = _moved(made, case.spec, field.name)
        require(
            moved is not None or _matters_elsewhere(made, case.spec, field.name),
            f"{case.name}: the field {field.name} is dead: no other value changes anything",
        )
        if moved is not None and isinstance(getattr(made, field.name), float):
            numbers[field.name] = getattr(moved, field.name)
    values = {name: getattr(made, name) for name in numbers}
    rows = [values] + [{**values, name: other} for name, other in numbers.items()]
    stacked = {name: jnp.array([row[name] for row in rows], jnp.float32) for name in values}
    histories = jax.jit(jax.vmap(lambda values: _history(made, case.spec, values)))(stacked)
    for index, name in enumerate(numbers, start=1):
        require(
            not all(np.array_equal(leaf[0], leaf[index]) for leaf in leaves(histories)),
            f"{case.name}: the field {name} is dead: {values[name]:g} and {numbers[name]:g} give "
            "the same after three updates",
        )


def _moved(made: Algorithm, spec: EnvSpec, name: str) -> Algorithm | None:
    """The algorithm with another value of a field that makes another program of it."""
    program = _program(made, spec)
    return next((each for each in others(made, name) if _program(each, spec) != program), None)


def _matters_elsewhere(made: Algorithm, spec: EnvSpec, name: str) -> bool:
    """Whether a field does something under another choice of some other field."""
    names = [field.name for field in dataclasses.fields(made) if field.name != name]
    types = field_types(type(made))
    choices = [
        other
        for other in names
        if not isinstance(getattr(made, other), int | float) or types[other] == Rate
    ]
    return any(
        _moved(variant, spec, name) is not None
        for other in choices
        for variant in others(made, other)
    )


@lru_cache(maxsize=256)
def _program(made: Algorithm, spec: EnvSpec) -> str:
    """All that an algorithm does, as text."""
    key = jax.random.key(0)

    def everything(key: jax.Array, step: jax.Array) -> Any:
        learner, seen = made.init(key, spec), random_batch(spec, 0).observation
        policy = made.policy_of(learner)
        actions = [made.act(policy, seen, key, explore=explore) for explore in (False, True)]
        return learner, actions, made.noise_step(key, step)

    limit = made.return_limit if isinstance(made, OffPolicy) else None
    text = traced(everything, key, jnp.int32(5)) + str((made.noise_memory, limit))
    if made.on_policy:
        return text
    learner = jax.eval_shape(partial(made.init, spec=spec), key)
    batch = random_batch(spec, 0)

    def steps(learner: Learner, key: jax.Array) -> Any:
        guide = Guide(made.policy_of(learner), jnp.float32(0.5))
        after = made.value_step(learner, batch, key)[0]
        after = made.policy_step(after, batch, guide, key)[0]
        distance = made.distance_between(guide.policy, made.policy_of(after), batch.observation)
        return after, distance

    return text + traced(steps, learner, key)


def _history(made: Algorithm, spec: EnvSpec, numbers: dict[str, Any]) -> Any:
    """What three updates leave behind, a distance and an action; fields may be traced."""
    one = dataclasses.replace(made, **numbers)
    learner = one.init(jax.random.key(0), spec)
    guide = jax.tree.map(lambda leaf: 0.5 * leaf, one.policy_of(learner))
    # Rewards are large, so that clips and thresholds are reached.
    batches = [random_batch(spec, index, ROWS) for index in range(3)]
    stacked = stack([batch._replace(reward=3 * batch.reward) for batch in batches])

    def update(learner: Learner, inputs: Any) -> tuple[Learner, None]:
        batch, index = inputs
        learner, _ = one.value_step(learner, batch, jax.random.key(index))
        pull = Guide(guide, jnp.float32(0.5))
        return one.policy_step(learner, batch, pull, jax.random.key(9 + index))[0], None

    learner, _ = jax.lax.scan(update, learner, (stacked, jnp.arange(3)))
    policy, seen = one.policy_of(learner), random_batch(spec, 7, 64).observation
    action = one.act(policy, seen, jax.random.key(2), explore=True)
    return learner, one.distance_between(policy, guide, seen), action


def check_scheme_fields(case: SchemeCase) -> None:
    """Every field of its own changes who acts, what is learned when, or what a review does."""
    scheme = case.scheme
    before = list(_behavior(scheme))
    for field in dataclasses.fields(scheme):
        if field.name == "algorithm":
            continue
        choices = list(others(scheme, field.name))
        moved = any(
            ours != theirs
            for each in choices
            for ours, theirs in zip(_behavior(each), before, strict=False)
        )
        require(
            moved or not choices,
            f"{case.name}: the field {field.name} is dead: no other value changes anything "
            "(if it needs others, give them: check_scheme(..., other=value))",
        )


def _behavior(scheme: Scheme) -> Iterator[str]:
    """All that a scheme does, as text; what is found out quickly comes first."""
    case, key = SchemeCase(scheme), jax.random.key(0)
    rhythm, everyone = scheme.rhythm(), np.arange(scheme.num_envs)
    tables = {
        "properties": {name: str(getattr(scheme, name)) for name in _properties(type(scheme))},
        "due": [rhythm.after(step, everyone, everyone.tolist()) for step in range(1, 12)],
        "policy": [
            (scheme.with_policy(update, place, 4), scheme.num_batches(place > 1))
            for update in range(1, 5)
            for place in range(4)
        ],
        "counts": [scheme.counts(step) for step in range(1, 12)],
        "updates": scheme.updates_per_environment_step(),
    }
    yield str(tables)
    init = partial(scheme.init, spec=case.spec)
    yield traced(init, key)
    state = jax.eval_shape(init, key)
    seen = jnp.zeros((scheme.num_envs, case.spec.observation_size))
    yield traced(lambda state: scheme.act(scheme.acting(state), seen, key, jnp.int32(3)), state)
    if not case.learns:
        return
    for with_policy in (False, True):
        learn = partial(scheme.learn, with_policy=with_policy)
        yield traced(learn, state, case.batches(with_policy), key)
    after, rows = case.reviewed(case.state, REVIEWS)
    yield str(rows)
    yield str([leaf.tobytes() for leaf in leaves(after)])


def _properties(made: type) -> list[str]:
    """What a scheme tells besides its fields."""
    found = inspect.getmembers(made, lambda member: isinstance(member, property))
    return [name for name, _ in found if not name.startswith("_")]
