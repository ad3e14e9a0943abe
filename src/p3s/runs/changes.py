"""Other values for a run that has begun: which fields may change, and which may not.

What may change are numbers that every update or action reads anew, and how a run is recorded. What
has shaped the learners, the replay or the random streams stays: another value would be ignored, or
the checkpoint would not fit it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import partial
from typing import Any, Union, get_args, get_origin

import jax

from p3s.config.options import RunOptions
from p3s.config.run import Config, field_values
from p3s.config.spec import Method, misplaced
from p3s.errors import UserError
from p3s.fields.types import as_field, bare, field_types
from p3s.types import EnvSpec

OPTIONS = (
    "steps", "data", "evaluation_period", "evaluation_episodes", "evaluation_workers",
    "env_workers", "env_restarts", "env_step_limit", "on_divergence", "stop_at", "patience",
    "video_period", "checkpoint_period", "metrics_period",
)  # fmt: skip
"""Options of a run that may change: what is learned depends on none. Data may be elsewhere, where a
share of minibatches comes from them; they must be the same."""
WHOLE_NUMBERS = ("batch_size", "policy_period", "learning_rate_steps")
"""Fields that may change although they are counts."""
STAYS = ("initial_temperature", "initial_step_size", "initial_variance", "own_share", "value_limit")
"""Numbers that nobody looks at later, or by which replay or networks were made."""


def with_changes(config: Config, values: Mapping[str, Any], spec: EnvSpec) -> Config:
    """The configuration with other values of some fields; UserError for one that cannot change."""
    scheme, algorithm = config.scheme, config.algorithm
    known = field_types(RunOptions, type(scheme), type(algorithm))
    del known["algorithm"]
    for name in values:
        if name in field_types(Method):
            raise UserError(f"{name} cannot change in a run that has begun", name)
        if name not in known:
            raise misplaced(name, set(known), scheme.name, algorithm.name)
    for name, value in values.items():
        config = _with_change(config, name, as_field(name, value, known[name]), spec)
    config.check()
    return config


def _with_change(config: Config, name: str, value: Any, spec: EnvSpec) -> Config:
    """The configuration with another value of one field."""
    groups = {"run": config.options, "scheme": config.scheme, "algorithm": config.algorithm}
    owner, group = next((o, g) for o, g in groups.items() if name in field_values(g))
    if value == getattr(group, name):
        return config
    if name in getattr(config.scheme, "perturbed", ()):
        message = f"{name} cannot change: every learner has its own under {config.scheme.name}"
        raise UserError(message, name)
    state, able = _state(config, spec), changeable(group)
    # P3S's beta adapts: the field was its first value only.
    able = [each for each in able if owner != "scheme" or not hasattr(state, each)]
    if name not in able:
        which = f"of the {owner}'s fields these can: {', '.join(able) or 'none'}"
        raise UserError(f"{name} cannot change in a run that has begun; {which}", name)
    new = dataclasses.replace(group, **{name: value})
    if owner == "run":
        return dataclasses.replace(config, options=new)
    scheme: Any = new if owner == "scheme" else None
    scheme = scheme or dataclasses.replace(config.scheme, algorithm=new)
    changed = dataclasses.replace(config, scheme=scheme).settled()
    changed.check()  # before anything is made of a number out of bounds
    if not _alike(_state(changed, spec), state):
        raise UserError(f"{name} cannot become {value} in a run that has begun", name)
    return changed


def changeable(group: Any) -> list[str]:
    """The names of the fields that may change."""
    if isinstance(group, RunOptions):
        return [name for name in OPTIONS if name != "data" or group.data_share > 0]
    known = field_types(type(group))
    return sorted(
        name
        for name in field_values(group)
        if (_is_number(known[name]) and name not in STAYS) or name in WHOLE_NUMBERS
    )


def _is_number(expected: Any) -> bool:
    """Whether a field holds a number that is no count, maybe among other things."""
    if get_origin(expected) in (Union, types.UnionType):
        return any(_is_number(choice) for choice in get_args(expected))
    return bare(expected) is float


def _state(config: Config, spec: EnvSpec) -> Any:
    """What learns, as shapes and types."""
    return jax.eval_shape(partial(config.scheme.init, spec=spec), jax.random.key(0))


def _alike(one: Any, other: Any) -> bool:
    """Whether two states have the same structure, shapes and types."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs)
