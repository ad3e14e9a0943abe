"""The contract of a scheme: what the loop, the shards and the records rely on.

A scheme is given a small algorithm (td3 unless told otherwise), minibatches and returns that are
made up, and no environment. For schemes of on-policy algorithms learning is not checked.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.algorithms import Algorithm
from p3s.cluster.parts import join_reports
from p3s.errors import UserError
from p3s.fields.types import check_fields
from p3s.schemes.base import EpisodeScheme, Scheme, StepScheme
from p3s.testing.cases import REVIEWS, SchemeCase, small_scheme
from p3s.testing.fields import check_scheme_fields
from p3s.testing.programs import (
    check_form,
    check_numbers,
    check_purity,
    close,
    leaves,
    probe_network,
    probes,
    random_batch,
    require,
    same,
)
from p3s.trees import pick, trained


def check_fields_of(case: SchemeCase) -> None:
    """Its values are allowed, and fit the algorithm."""
    try:
        check_fields(case.scheme)
    except UserError as error:
        require(False, f"{case.name} has a default that its own bounds forbid: {error}")
    problem = case.scheme.problem()
    require(problem is None, f"{case.name} has a problem by default: {problem}")


def check_init(case: SchemeCase) -> None:
    """The state starts with finite random numbers, stacked where it says so."""
    scheme, state = case.scheme, case.state
    key = jax.random.key(0)
    check_purity(lambda key: scheme.init(key, case.spec), f"{case.name}: init", key)
    check_numbers(state._asdict(), f"{case.name}: init")
    require(same(state, case.init(key)), f"{case.name}: init gives two states for one key")
    require(
        not same(trained(state), trained(case.init(jax.random.key(1)))),
        f"{case.name}: init ignores its key: two keys give the same state",
    )
    for field in scheme.stacked:
        axes = {leaf.shape[:1] for leaf in leaves(getattr(state, field))}
        require(
            axes <= {(scheme.num_trained,)},
            f"{case.name}: {field} is stacked, and has no leading axis of {scheme.num_trained}",
        )


def check_policies(case: SchemeCase) -> None:
    """Every environment copy has a policy that acts in it, and champions are named."""
    scheme, state = case.scheme, case.state
    acting = {leaf.shape[0] for leaf in leaves(scheme.policies(state))}
    expected = scheme.num_envs // scheme.envs_per_learner
    require(
        acting == {expected},
        f"{case.name}: policies gives {acting} policies for {scheme.num_envs} environment copies",
    )
    champions = min(leaf.shape[0] for leaf in leaves(scheme.champions(state)))
    extra = len(scheme.extra_champions)
    require(champions > extra, f"{case.name}: champions gives none but the {extra} extra ones")


def check_actions(case: SchemeCase) -> None:
    """Every copy gets an action, which depends on the key."""
    scheme, spec = case.scheme, case.spec
    seen = random_batch(spec, 2, scheme.num_envs).observation
    act = jax.jit(scheme.act)
    acting = scheme.acting(case.state)
    first, again, other = (
        np.asarray(act(acting, seen, jax.random.key(seed), np.int32(7))) for seed in (0, 0, 1)
    )
    own = () if spec.discrete else (spec.action_size,)
    require(
        first.shape == (scheme.num_envs, *own),
        f"{case.name}: act returns {first.shape} for {scheme.num_envs} environment copies",
    )
    require(np.array_equal(first, again), f"{case.name}: act gives two actions for one key")
    explores = isinstance(scheme, StepScheme)
    require(not explores or not np.array_equal(first, other), f"{case.name}: act ignores its key")
    check_purity(scheme.act, f"{case.name}: act", acting, seen, jax.random.key(0), jnp.int32(7))


def check_learning(case: SchemeCase) -> None:
    """An update changes the state's numbers, and neither its form nor its arguments."""
    if not case.learns:
        return
    scheme, what = case.scheme, f"{case.name}: learn"
    batches, key = case.batches(True), jax.random.key(1)
    for with_policy in (False, True):
        learn = partial(scheme.learn, with_policy=with_policy)
        check_purity(learn, what, case.state, case.batches(with_policy), key)
    after, metrics = case.learned
    check_form(after._asdict(), case.state._asdict(), what)
    check_numbers(after._asdict(), what)
    require(not same(after, case.state), f"{what} changes nothing")
    again, _ = case.learn(case.state, batches, key, True)
    require(same(after, again), f"{what} is not the same twice")
    shapes = {np.shape(value) for value in metrics.values()}
    require(
        shapes == {(scheme.num_batches(True),)},
        f"{what} tells metrics of {sorted(shapes)} for {scheme.num_batches(True)} learners",
    )


def check_review(case: SchemeCase) -> None:
    """A review depends on its arguments alone, changes none of them, and can be written down."""
    if not case.learns:
        return
    what = f"{case.name}: review"
    state, _ = case.learned
    kept = jax.tree.map(np.array, state)
    try:
        (after, rows), (again, same_rows) = (case.reviewed(state, REVIEWS) for _ in range(2))
    except ValueError as error:
        require("read-only" not in str(error), f"{what} changes recent_returns or observations")
        raise
    require(same(kept, state), f"{what} changes its state in place: return a new one")
    require(
        same(after, again) and str(rows) == str(same_rows),
        f"{what} is not the same twice: draw random numbers from rng alone",
    )
    check_form(after._asdict(), kept._asdict(), what)
    check_numbers(after._asdict(), what)
    for row in rows:
        require("best" in row, f"{what} does not write who is best into the lineage")
        try:
            json.dumps(row)
        except (TypeError, ValueError) as error:
            require(False, f"{what} writes a value that JSON cannot hold: {error}")
    if isinstance(case.scheme, StepScheme):
        nothing = np.full_like(case.returns(0), np.nan)
        _, row = case.scheme.review(state, nothing, case.observations, np.random.default_rng(0))
        require(row["best"] is None, f"{what} names a best learner before the first episode")


def check_start(case: SchemeCase) -> None:
    """Learners may start from a given policy; the state keeps its form, and shares no arrays."""
    scheme, what = case.scheme, f"{case.name}: with_start"
    if isinstance(scheme, EpisodeScheme):
        return
    policy = pick(scheme.policies(case.init(jax.random.key(1))), 0)
    started = scheme.with_start(case.state, jax.device_get(policy), [0])
    check_form(started._asdict(), case.state._asdict(), what)
    ours, before = scheme.policies(started), scheme.policies(case.state)
    require(same(pick(ours, 0), policy), f"{what} does not put the policy in its place")
    require(
        same(pick(ours, slice(1, None)), pick(before, slice(1, None))),
        f"{what} changes the policies of others",
    )
    arrays = [leaf for leaf in jax.tree.leaves(started) if isinstance(leaf, jax.Array)]
    require(
        len(set(map(id, arrays))) == len(arrays),
        f"{what} puts one array into the state twice, and updates write over arrays: copy it",
    )


def check_carried(case: SchemeCase) -> None:
    """What a policy carries is copied, and never averaged, perturbed or trained."""
    if not case.learns or not hasattr(case.scheme.algorithm, "network"):
        return
    probe = dataclasses.replace(case.scheme.algorithm, network=probe_network())
    scheme = dataclasses.replace(case.scheme, algorithm=probe)
    key = jax.random.key(0)
    state = jax.jit(partial(scheme.init, spec=case.spec))(key)
    # Each policy gets a mark of its own.
    count = iter(range(10**6))
    marked = jax.tree.map(
        lambda leaf: (
            np.float32(1.0 + np.reshape([next(count) for _ in range(leaf.size)], leaf.shape) / 64)
            if leaf.dtype == np.float32 and leaf.ndim <= 1 and (np.asarray(leaf) == 1.0).all()
            else np.asarray(leaf)
        ),
        state,
    )
    learned, _ = jax.jit(scheme.learn, static_argnums=3)(marked, case.batches(True), key, True)
    rng = np.random.default_rng(0)
    reviewed, _ = scheme.review(marked, case.returns(1), case.observations, rng)
    before = {float(mark) for leaf in probes(marked) for mark in np.ravel(leaf)}
    for what, after in (("learn", learned), ("review", reviewed)):
        now = {float(mark) for leaf in probes(after) for mark in np.ravel(leaf)}
        require(
            now <= before,
            f"{case.name}: {what} changes a carried leaf: work on trained(policy), and merge",
        )


def check_parts(case: SchemeCase) -> None:
    """Split over shards, learners learn and are reviewed as they are in one place."""
    scheme = case.scheme
    if not scheme.can_be_split or scheme.num_trained < 2:
        return
    state, _ = case.learned
    middle = scheme.num_trained // 2
    halves = (slice(None, middle), slice(middle, None))
    parts = [_half(scheme, state, half) for half in halves]
    batches, key = case.batches(True), jax.random.key(6)
    whole, _ = case.learn(state, batches, key, True)
    for half, part in zip(halves, parts, strict=True):
        own = jax.tree.map(lambda leaf, half=half: leaf[half], batches)
        after, _ = case.learn(part, own, key, True)
        require(
            close(after, _half(scheme, whole, half)),
            f"{case.name}: learn treats a part of the learners differently from all of them",
        )
    returns, seen = case.returns(1), case.observations
    expected, row = scheme.review(state, returns, seen, np.random.default_rng(0))
    report = join_reports([jax.device_get(scheme.report(part, seen)) for part in parts])
    decision = scheme.decide(report, returns, np.random.default_rng(0))
    offers = {
        source: scheme.offer(parts[source >= middle], source - middle * (source >= middle))
        for source in decision.sources
    }
    for half, part in zip(halves, parts, strict=True):
        require(
            close(scheme.apply(part, decision, offers), _half(scheme, expected, half))
            and decision.row.get("best") == row.get("best"),
            f"{case.name}: a review of parts differs from one of the whole",
        )


def _half(scheme: Scheme, state: Any, half: slice) -> Any:
    return state._replace(
        **{
            name: jax.tree.map(lambda leaf: leaf[half], getattr(state, name))
            for name in scheme.stacked
        }
    )


SCHEME_CHECKS: tuple[Callable[[SchemeCase], None], ...] = (
    check_fields_of,
    check_init,
    check_policies,
    check_actions,
    check_learning,
    check_review,
    check_start,
    check_carried,
    check_parts,
    check_scheme_fields,
)


def check_scheme(
    scheme: str | type[Scheme], algorithm: str | type[Algorithm] = "td3", **fields: Any
) -> None:
    """Raise ContractError for the first contract that a scheme breaks.

    algorithm: what its learners are. fields: of both, such that every other field does something
    within four reviews.
    """
    case = SchemeCase(small_scheme(scheme, algorithm, **fields))
    for check in SCHEME_CHECKS:
        check(case)
