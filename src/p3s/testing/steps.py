"""The contract of an algorithm's two steps: what they change, follow and tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.learning.learners import update_learners
from p3s.learning.metrics import VALUE_LOSS, policy_loss_name, recorded
from p3s.testing.cases import ROWS, AlgorithmCase, keys
from p3s.testing.programs import (
    check_form,
    check_numbers,
    check_purity,
    close,
    probe_network,
    probes,
    random_batch,
    require,
    same,
    stack,
)
from p3s.trees import pick, trained
from p3s.types import Guide, Learner, Metrics, Params


def check_steps(case: AlgorithmCase) -> None:
    """A step changes what it is for, and nothing else."""
    made, name = case.algorithm, case.name
    guide = Guide(case.policies()[1], jnp.float32(0.5))
    marked = case.learner._replace(extra={**case.learner.extra, "of a scheme": jnp.float32(3.0)})
    for what, step in (
        ("value_step", lambda learner, key: made.value_step(learner, case.batch, key)),
        ("policy_step", lambda learner, key: made.policy_step(learner, case.batch, guide, key)),
    ):
        check_purity(step, f"{name}: {what}", case.learner, *keys(1))
        after = jax.eval_shape(step, marked, *keys(1))[0]
        require(
            "of a scheme" in after.extra,
            f"{name}: {what} replaces extra: keep what else is in it ({{**learner.extra, ...}})",
        )
    valued, after, *_ = case.updated
    for what, moved, before in (
        ("value_step", valued, case.learner),
        ("policy_step", after, valued),
    ):
        check_form(moved._asdict(), before._asdict(), f"{name}: {what}")
        check_numbers(moved._asdict(), f"{name}: {what}")
    require(
        same(made.policy_of(valued), made.policy_of(case.learner)),
        f"{name}: value_step changes the policy",
    )
    require(
        not made.has_own_policy or not same(trained(valued.value), trained(case.learner.value)),
        f"{name}: value_step leaves the value functions as they were",
    )
    require(
        not same(*(trained(made.policy_of(each)) for each in (after, valued))),
        f"{name}: policy_step leaves the policy as it was",
    )
    require(
        same(trained(after.value), trained(valued.value)),
        f"{name}: policy_step changes the value functions",
    )


def check_metrics(case: AlgorithmCase) -> None:
    """Both steps return `Metrics` of finite numbers, with a loss where something is learned."""
    guide = Guide(case.policies()[1], jnp.float32(0.5))
    key = jax.random.key(2)
    told = [
        jax.eval_shape(case.algorithm.value_step, case.learner, case.batch, key)[1],
        jax.eval_shape(case.algorithm.policy_step, case.learner, case.batch, guide, key)[1],
    ]
    for what, metrics in zip(("value_step", "policy_step"), told, strict=True):
        require(
            isinstance(metrics, Metrics),
            f"{case.name}: {what} returns a {type(metrics).__name__} for p3s.types.Metrics",
        )
        learns = what == "policy_step" or case.algorithm.has_own_policy
        told = not learns or metrics.loss is not None
        require(told, f"{case.name}: {what} returns metrics without a loss")
        known = {"loss", VALUE_LOSS, policy_loss_name(case.algorithm), *Metrics._fields}
        taken = sorted(known & set(metrics.more or {}))
        require(not taken, f"{case.name}: {what} has a further metric with a known name: {taken}")
        for name, value in recorded(metrics, "loss").items():
            single = value.shape == () and value.dtype == np.float32
            require(single, f"{case.name}: metric {name} of {what} is not a single float32")
    check_numbers([metrics._asdict() for metrics in case.updated[2:]], f"{case.name}: metrics")


def check_guide(case: AlgorithmCase) -> None:
    """A guide pulls by its weight, and one of weight 0 does not pull at all."""
    _, ours, *_ = case.updated_with(case.other, 0.0)
    _, theirs, *_ = case.updated_with(case.learner, 0.0)
    require(same(ours, theirs), f"{case.name}: policy_step follows a guide of weight 0")
    require(not same(ours, case.updated[1]), f"{case.name}: policy_step ignores its guide")


def check_loss_terms(case: AlgorithmCase) -> None:
    """`takes_loss_terms` tells whether the policy step minimizes `guide.term`."""
    asked: list[Any] = []

    def term(policy: Params) -> jax.Array:
        asked.append(policy)
        return jnp.float32(0.0)

    def step(key: jax.Array) -> Any:
        learner = case.algorithm.init(key, case.spec)
        guide = Guide(case.algorithm.policy_of(learner), jnp.float32(0.0), term)
        return case.algorithm.policy_step(learner, case.batch, guide, key)

    jax.eval_shape(step, jax.random.key(0))
    says = case.algorithm.takes_loss_terms
    takes = "takes" if asked else "does not take"
    require(
        says == bool(asked),
        f"{case.name}: policy_step {takes} guide.term, and takes_loss_terms is {says}",
    )


def check_carried(case: AlgorithmCase) -> None:
    """No step trains a carried leaf; seen by a network with one, where there is a choice."""
    if not hasattr(case.algorithm, "network"):
        return
    probe = dataclasses.replace(case.algorithm, network=probe_network())
    init = jax.jit(partial(probe.init, spec=case.spec))
    guide = Guide(probe.policy_of(init(jax.random.key(1))), jnp.float32(0.5))

    def steps(learner: Learner) -> tuple[Learner, Learner]:
        valued, _ = probe.value_step(learner, case.batch, jax.random.key(2))
        return valued, probe.policy_step(valued, case.batch, guide, jax.random.key(3))[0]

    learner = init(jax.random.key(0))
    if untouched(steps, learner):
        return
    for what, after in zip(("value_step", "policy_step"), jax.jit(steps)(learner), strict=True):
        for part in ("policy", "value"):
            before, now = (probes(getattr(each, part)) for each in (learner, after))
            require(
                all(map(np.array_equal, now, before)),
                f"{case.name}: {what} trains a carried leaf of its {part}: differentiate "
                "trained(params), and merge what comes out",
            )


def untouched(steps: Callable[..., Any], learner: Learner) -> bool:
    """Whether steps hand on the probes of a learner as they are, by their trace."""
    found: list[bool] = []

    def watched(learner: Learner) -> None:
        for after in steps(learner):
            pairs = zip(_online(after), _online(learner), strict=True)
            found.append(all(one is other for one, other in pairs))

    jax.eval_shape(watched, learner)
    return all(found)


def _online(learner: Learner) -> list[Any]:
    return probes((learner.policy, learner.value))


def check_stacking(case: AlgorithmCase) -> None:
    """Three learners in one program do what each would do alone."""
    made = case.algorithm
    learners = stack([case.init(jax.random.key(seed)) for seed in range(3)])
    rows = [random_batch(case.spec, index, ROWS) for index in range(3)]
    weights = jnp.array([0.5, 0.0, 2.0], jnp.float32)
    guide = Guide(pick(made.policy_of(learners), 1), weights)
    key = jax.random.key(4)
    together, metrics = jax.jit(partial(update_learners, made, with_policy=True))(
        learners, stack(rows), guide, key, jnp.arange(3)
    )
    for index in range(3):
        own = Guide(guide.policy, weights[index])
        _, alone, told, more = case.update(
            pick(learners, index), rows[index], own, jax.random.fold_in(key, index)
        )
        require(
            close(pick(together, index), alone),
            f"{case.name}: a learner learns differently in a population than alone",
        )
        alone_metrics = recorded(told, VALUE_LOSS) | recorded(more, policy_loss_name(made))
        for name, value in alone_metrics.items():
            require(
                np.allclose(metrics[name][index], value, rtol=3e-4, atol=1e-5),
                f"{case.name}: the metric {name} differs in a population",
            )
