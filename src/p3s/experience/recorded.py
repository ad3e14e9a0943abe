"""Recorded transitions in the environment's own terms, made rows of a replay, and back.

    observations, next_observations   what the learners see: float32 vectors or uint8 images; or, to
                                      be read, the environment's own
    actions                           in the environment's own range
    rewards, terminations, truncations

A step is followed by the next one, unless an episode ends there or the next one begins elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from p3s.envs import Adapter, describe
from p3s.envs.action_range import learners_actions, own_actions
from p3s.envs.flattening import flatten_observation
from p3s.errors import UserError
from p3s.experience.data import Data
from p3s.experience.episode_links import NONE
from p3s.experience.rows import fields, pack
from p3s.types import Transition

TOLERANCE = 1e-5
"""By this share of its range an action may lie outside: it was rounded."""
PIECE = 1 << 12
"""Rows that are compared at a time."""


class Recorded(NamedTuple):
    """Transitions, (count, ...) each; observations of structured spaces may be trees of arrays."""

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: Any
    terminations: np.ndarray
    truncations: np.ndarray


def as_data(recorded: Recorded, env: Adapter, source: str) -> Data:
    """Recorded transitions as rows for this environment; UserError names what does not fit."""
    try:
        return _as_data(recorded, env, source)
    except Mismatch as error:
        raise UserError(f"{source}: {error}", "data") from None


class Mismatch(ValueError):
    """What of some recorded transitions does not fit, and why."""


def _as_data(recorded: Recorded, env: Adapter, source: str) -> Data:
    spec, count = env.env_spec, recorded.rewards.size
    if recorded.rewards.ndim != 1 or recorded.rewards.dtype.kind not in "fiu":
        raise Mismatch(f"rewards are {_kind(recorded.rewards)}, not a number each")
    if count == 0:
        raise Mismatch("it holds no transitions")
    for name in ("terminations", "truncations"):
        flags = getattr(recorded, name)
        if flags.dtype != bool or flags.shape != (count,):
            raise Mismatch(f"{name} are {_kind(flags)}, not a truth value for each of {count:,}")
    discounts = 1 - recorded.terminations.astype(np.float32)
    rows = pack(
        spec,
        Transition(
            _observations(recorded.observations, "observations", count, env),
            _actions(recorded.actions, count, env),
            _finite(recorded.rewards, "rewards"),
            discounts,
            _observations(recorded.next_observations, "next_observations", count, env),
        ),
    )
    view = fields(rows, spec)
    following = np.arange(1, count + 1)
    following[recorded.terminations | recorded.truncations] = NONE
    following[-1] = NONE
    goes_on = _equal(view["next_observation"][:-1], view["observation"][1:])
    following[:-1][~goes_on] = NONE
    return Data(spec, rows, following, source)


def _observations(found: Any, name: str, count: int, env: Adapter) -> np.ndarray:
    """Observations as learners see them."""
    spec, misfit = env.env_spec.observation, Mismatch(_misfit(found, name, count, env))
    if not isinstance(found, dict | tuple) and found.shape == (count, *spec.shape[:-1]):
        found = found[..., None] if spec.shape[-1] == 1 else found
    if isinstance(found, dict | tuple) or found.shape != (count, *spec.shape):
        space = env.about_spaces().get("observation_space")
        if space is None or env.shows_more:
            raise misfit
        _check_parts(found, name)
        try:
            found = flatten_observation(space, found).reshape(-1, *spec.shape)
        except ValueError:
            raise misfit from None
    if len(found) != count or found.dtype.kind not in "fiu":
        raise misfit
    if spec.dtype == "uint8":
        if found.dtype != np.uint8:
            raise misfit
        return found
    return _finite(found, name)


def _check_parts(found: Any, name: str) -> None:
    """Mismatch for a number in a part of an observation that is not finite."""
    if isinstance(found, dict | tuple):
        parts = found.items() if isinstance(found, dict) else enumerate(found)
        for key, part in parts:
            _check_parts(part, f"{name}.{key}")
    elif found.dtype.kind == "f":
        _finite(found, name)


def _misfit(found: Any, name: str, count: int, env: Adapter) -> str:
    kind = "of several parts" if isinstance(found, dict | tuple) else _kind(found)
    spec = env.env_spec.observation
    each = f"{spec.dtype}{[count, *spec.shape]}"
    return f"{name} are {kind}; of {describe(env)} they would be {each}"


def _actions(own: np.ndarray, count: int, env: Adapter) -> np.ndarray:
    """Actions as learners have them."""
    spec, about = env.env_spec, env.about_spaces()
    shape = () if spec.discrete else tuple(about["action_shape"])
    if own.shape != (count, *shape) or own.dtype.kind not in ("iu" if spec.discrete else "fiu"):
        kind = "whole numbers" if spec.discrete else "numbers"
        would = f"{kind} of shape {[count, *shape]}"
        raise Mismatch(f"actions are {_kind(own)}; of {describe(env)} they would be {would}")
    if spec.discrete:
        low = np.int64(about["action_start"])
        high, slack = low + spec.action_size - 1, 0
    else:
        own = _finite(own, "actions", np.float64)
        low, high = (np.reshape(about[name], shape) for name in ("action_low", "action_high"))
        slack = TOLERANCE * (high - low)
    outside = np.argwhere((own < low - slack) | (own > high + slack))
    if len(outside):
        place = tuple(outside[0].tolist())
        least, most = (np.broadcast_to(bound, own.shape)[place] for bound in (low, high))
        what = f"actions{list(place)} is {own[place]:g}"
        raise Mismatch(f"{what}; {describe(env)} takes {least:g} to {most:g}")
    return learners_actions(about, spec, own)


def _finite(array: np.ndarray, name: str, dtype: Any = np.float32) -> np.ndarray:
    """The array in this type; Mismatch names the first value that is not finite in it."""
    with np.errstate(over="ignore"):
        converted = array.astype(dtype, copy=False)
    bad = ~np.isfinite(converted)
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise Mismatch(f"{name}{list(place)} is {array[place]}, not a finite number")
    return converted


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _equal(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Which of these are equal to their counterparts, (count,)."""
    found = np.empty(len(these), bool)
    for start in range(0, len(these), PIECE):
        part = slice(start, start + PIECE)
        same = these[part] == those[part]
        found[part] = same.reshape(len(same), -1).all(axis=1)
    return found


# ---------------------------------------------------------------------- from a replay


def as_recorded(rows: np.ndarray, env: Adapter, num_copies: int, in_turns: bool) -> Recorded:
    """The rows of a replay, oldest first, in the order of their episodes.

    in_turns: whether all copies step every time; else some wait, and a row may be followed by any
    of the next `num_copies`. A step that no row follows ends as a truncation.
    """
    spec, about = env.env_spec, env.about_spaces()
    view = fields(rows, spec)
    following = _following(view, num_copies, in_turns)
    order = _by_episode(following)
    view, ended = view[order], following[order] == NONE
    terminations = view["discount"] == 0
    actions = view["action"]
    actions = actions[:, 0].astype(np.int64) if spec.discrete else actions
    return Recorded(
        view["observation"],
        own_actions(about, spec, actions),
        view["reward"],
        view["next_observation"],
        terminations,
        ended & ~terminations,
    )


def _following(view: np.ndarray, num_copies: int, in_turns: bool) -> np.ndarray:
    """For each row the one that begins where it ends; NONE after a termination, and without one.

    A replay does not say where a time limit ended an episode. But the next one begins elsewhere.
    """
    following, is_next = np.full(len(view), NONE), np.zeros(len(view), bool)
    goes_on = view["discount"] != 0
    # Between rows in turns there may be others that were put in, one after another.
    for steps in dict.fromkeys([num_copies, 1]) if in_turns else range(1, num_copies + 1):
        if steps >= len(view):
            break
        found = goes_on[:-steps] & (following[:-steps] == NONE) & ~is_next[steps:]
        found &= _equal(view["next_observation"][:-steps], view["observation"][steps:])
        places = np.flatnonzero(found)
        following[places] = places + steps
        is_next[places + steps] = True
    return following


def _by_episode(following: np.ndarray) -> np.ndarray:
    """Places such that every step comes right before the one that follows it."""
    first = np.setdiff1d(np.arange(len(following)), following).tolist()
    after, order = following.tolist(), list[int]()
    for place in first:
        while place != NONE:
            order.append(place)
            place = after[place]
    return np.array(order, np.int64)
