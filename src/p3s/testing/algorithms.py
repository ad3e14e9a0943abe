"""The contract of an algorithm: what schemes, the loop and the records rely on.

For on-policy algorithms, which have other steps, only what all algorithms have is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.errors import UserError
from p3s.fields.types import check_fields
from p3s.networks import Multi
from p3s.plugins.loading import find
from p3s.testing.cases import ROWS, AlgorithmCase, keys, small_algorithm
from p3s.testing.fields import check_algorithm_fields
from p3s.testing.programs import (
    SPECS,
    check_numbers,
    check_purity,
    close,
    leaves,
    random_batch,
    require,
    same,
)
from p3s.testing.steps import (
    check_carried,
    check_guide,
    check_loss_terms,
    check_metrics,
    check_stacking,
    check_steps,
)
from p3s.trees import trained
from p3s.types import ObservationSpec


def check_fields_of(case: AlgorithmCase) -> None:
    """It is a frozen dataclass whose values are allowed, and knows the actions it is for."""
    made = case.algorithm
    require(
        dataclasses.is_dataclass(made),
        f"{case.name} is not a frozen dataclass",
    )
    try:
        check_fields(made)
    except UserError as error:
        require(False, f"{case.name} has a default that its own bounds forbid: {error}")
    require(made.problem() is None, f"{case.name} has a problem by default: {made.problem()}")


def check_init(case: AlgorithmCase) -> None:
    """A learner starts with finite random numbers, and its optimizers with zeros."""
    check_purity(lambda key: case.algorithm.init(key, case.spec), f"{case.name}: init", *keys(1))
    check_numbers(case.learner._asdict(), f"{case.name}: init")
    require(
        same(case.learner, case.init(jax.random.key(0))),
        f"{case.name}: init gives two learners for one key",
    )
    for part in ("policy", "value"):
        ours, theirs = (trained(getattr(each, part)) for each in (case.learner, case.other))
        require(
            not leaves(ours) or not same(ours, theirs),
            f"{case.name}: init ignores its key: two keys give the same {part}",
        )
    zeros = case.algorithm.on_policy or not any(
        leaf.any() for leaf in leaves(case.learner.optimizers)
    )
    require(zeros, f"{case.name}: init starts optimizers with numbers other than 0")


def check_actions(case: AlgorithmCase) -> None:
    """Actions have the shape and range of the environment's, for one observation or many."""
    made, spec = case.algorithm, case.spec
    policy, _ = case.policies()
    seen = random_batch(spec, 1, 64).observation
    key, another = keys(2)
    check_purity(
        lambda policy, key: made.act(policy, seen, key, explore=True),
        f"{case.name}: act",
        policy,
        key,
    )
    for explore in (False, True):
        act = jax.jit(partial(made.act, explore=explore))
        actions, one = (np.asarray(act(policy, rows, key)) for rows in (seen, seen[0]))
        own = () if spec.discrete else (spec.action_size,)
        require(
            actions.shape == (64, *own) and one.shape == own,
            f"{case.name}: act returns {actions.shape} for 64 observations and {one.shape} for one",
        )
        _check_range(case, actions, explore)
        differ = not np.array_equal(actions, act(policy, seen, another))
        if explore:
            require(differ, f"{case.name}: act ignores its key when it explores")
        else:
            require(not differ, f"{case.name}: act is random without exploring")
            alone = jax.vmap(act, in_axes=(None, 0, None))(policy, seen, key)
            require(
                close(alone, actions),
                f"{case.name}: act at one observation depends on the others of the batch",
            )


def _check_range(case: AlgorithmCase, actions: np.ndarray, explore: bool) -> None:
    if case.spec.discrete:
        possible = actions.dtype == np.int32 and 0 <= actions.min() <= actions.max() < 4
        require(possible, f"{case.name}: act does not return an int32 index of an action")
    elif not (explore and case.algorithm.on_policy):
        require(np.abs(actions).max() <= 1, f"{case.name}: act leaves [-1, 1]")


def check_distance(case: AlgorithmCase) -> None:
    """The distance is 0 from a policy to itself, and grows on the way to another one."""
    policy, other = case.policies()
    seen = case.batch.observation
    distance = jax.jit(case.algorithm.distance_between)
    apart = np.asarray(distance(policy, other, seen))
    require(
        apart.shape == (ROWS,),
        f"{case.name}: distance_between returns {apart.shape} for {ROWS} observations",
    )
    require(
        np.allclose(distance(policy, policy, seen), 0.0, atol=1e-6),
        f"{case.name}: distance_between a policy and itself is not 0",
    )
    require((apart > 0).all(), f"{case.name}: distance_between two policies is not above 0")
    towards = jax.tree.map(lambda ours, theirs: ours + 0.1 * (theirs - ours), policy, other)
    require(
        (np.asarray(distance(policy, towards, seen)) < apart).all(),
        f"{case.name}: distance_between is not smaller to a policy on the way to the other",
    )


def check_images(case: AlgorithmCase) -> None:
    """Its networks are told which bytes of an observation are images and which are numbers."""
    observation = ObservationSpec.packed(2, ((4, 4, 1),))
    made = dataclasses.replace(case.algorithm, network=Multi.name)
    spec = dataclasses.replace(case.spec, observation=observation)
    seen = jax.ShapeDtypeStruct((ROWS, *observation.shape), np.uint8)
    batch = random_batch(case.spec, 0)._replace(observation=seen, next_observation=seen)

    def everything(key: jax.Array, batch: Any) -> Any:
        learner = made.init(key, spec)
        policy = made.policy_of(learner)
        action = made.act(policy, batch.observation, key, explore=False)
        return action, made.value_step(learner, batch, key)

    try:
        jax.eval_shape(everything, jax.random.key(0), batch)
    except UserError:
        require(
            False,
            f"{case.name}: init hides from init_network what is an image: give it spec.features, "
            "not its shape",
        )


FOR_ALL = (check_fields_of, check_init, check_actions)
ALGORITHM_CHECKS: tuple[Callable[[AlgorithmCase], None], ...] = (
    *FOR_ALL,
    check_images,
    check_loss_terms,
    check_metrics,
    check_steps,
    check_guide,
    check_carried,
    check_distance,
    check_stacking,
    check_algorithm_fields,
)


def check_algorithm(algorithm: str | type[Algorithm], **fields: Any) -> None:
    """Raise ContractError for the first contract that an algorithm breaks.

    fields: values under which every other field does something within three updates.
    """
    made = find(ALGORITHMS, "algorithm", algorithm) if isinstance(algorithm, str) else algorithm
    kinds = SPECS if made.actions == "both" else (made.actions,)
    for kind in kinds:
        case = AlgorithmCase(small_algorithm(made, **fields), SPECS[kind])
        for check in FOR_ALL if made.on_policy else ALGORITHM_CHECKS:
            check(case)
