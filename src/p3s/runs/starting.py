"""What a run has before its first step besides a seed: data in its replay, policies to start from.

    data without a share of their own     are the first transitions in the replay
    start_from                            a trained policy takes the place of learners' own
    cloning_updates                       fit it, or learner 0's own, to the data's actions first

Value functions and optimizers begin as ever. A resumed run has all of this in its checkpoint.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax

from p3s.algorithms.off_policy import OffPolicy
from p3s.config.run import field_values
from p3s.errors import UserError, note
from p3s.experience.data import Data
from p3s.experience.replay import Replay
from p3s.learning.cloning import clone, why_no_clone
from p3s.policies.hub import fetch_policy, is_hub_name, parse_hub_name
from p3s.policies.policy import Policy
from p3s.runs.best_policy import policy_file
from p3s.runs.transitions import read_data
from p3s.train import Training
from p3s.types import Params


def begin_warm(training: Training) -> None:
    """Put into a new run what it is to have before its first step."""
    options, data = training.options, training.data
    if options.data is not None and data is None:
        with contextlib.closing(training.make()) as example:
            data = read_data(options.data, example)
        fill(training, data)
    if options.start_from is None and options.cloning_updates == 0:
        return
    policy = _first_policy(training)
    if options.cloning_updates > 0:
        assert data is not None
        policy = _cloned(training, policy, data)
    everybody = range(training.scheme.num_learners)
    training.crew.start_from(jax.device_get(policy), list(options.start_learners or everybody))


def fill(training: Training, data: Data) -> None:
    """Put transitions into the replay of a run, as if they were its own latest ones."""
    experience, scheme = training.experience, training.scheme
    if not isinstance(experience, Replay):
        what = "is in shards" if experience.ring is not None else "keeps no replay"
        raise UserError(f"transitions can be put into one replay, and this run {what}", "data")
    if scheme.own_rows > 0:
        raise UserError("own_share needs to know whose transitions the replay holds", "own_share")
    if len(data) > experience.ring.capacity:
        raise UserError(
            f"{data.source} holds {len(data):,} transitions, the replay "
            f"{experience.ring.capacity:,}: give more (--buffer-size)",
            "buffer_size",
        )
    training.crew.catch_up()
    experience.fill(data)


def _first_policy(training: Training) -> Params:
    """The policy of the file, which fits the run, or what learner 0 would begin with."""
    source = training.options.start_from
    if source is None:
        return training.crew.policy(0)
    on_hub = is_hub_name(source)
    file = fetch_policy(parse_hub_name(source)) if on_hub else policy_file(Path(source))
    policy = Policy.load(file)
    problem = _misfit(policy, training)
    if problem is not None:
        raise UserError(f"{source} {problem}", "start_from")
    return policy.params


def _misfit(policy: Policy, training: Training) -> str | None:
    """Why a run cannot start from a policy; None if it can."""
    ours, own = training.config.algorithm, policy.algorithm
    if own.name != ours.name:
        return f"is a policy of {own.name}, and this run learns with {ours.name}"
    if policy.spec != training.spec:
        return f"is for {policy.spec}, and this environment has {training.spec}"
    for name, value in training.about_spaces.items():
        if policy.about.get(name) != value:
            return f"has {name} {policy.about.get(name)}, and this environment {value}"
    if policy.scaling is not None:
        return "takes normalized observations, whose statistics a new run begins anew"
    expected = training.crew.policy(0)
    if _shapes(policy.params) == _shapes(expected):
        return None
    mine, theirs = field_values(ours), field_values(own)
    differing = [name for name in mine if mine[name] != theirs.get(name) and name in SHAPING]
    about = ", ".join(f"{name} {_words(theirs[name])}" for name in differing) or "other parts"
    wanted = ", ".join(_words(mine[name]) for name in differing)
    return f"has {about}, and this run {wanted or 'none of them'}"


SHAPING = (
    "hidden_sizes", "policy_hidden_sizes", "activation", "policy_activation", "layer_norm",
    "policy_layer_norm", "network", "precision", "scale_images", "image_axes", "dueling",
)  # fmt: skip
"""Fields that decide what a policy's parameters are, and what they do."""


def _words(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shapes(params: Params) -> Any:
    """Structure, shapes and types of parameters, their network included."""
    leaves, structure = jax.tree.flatten(params)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _cloned(training: Training, policy: Params, data: Data) -> Params:
    """The policy fitted to the data's actions."""
    algorithm, options = training.config.algorithm, training.options
    reason = why_no_clone(training.spec, policy)
    if reason is not None:
        message = f"a policy of {algorithm.name} cannot be fitted to actions: {reason}"
        raise UserError(message, "cloning_updates")
    assert isinstance(algorithm, OffPolicy)
    policy, losses = clone(algorithm, policy, data, options.cloning_updates, options.seed)
    errors = f"from {losses[0]:.3g} to {losses[-1]:.3g}"
    note(f"{len(losses):,} cloning updates: half the squared error of actions {errors}")
    return policy
