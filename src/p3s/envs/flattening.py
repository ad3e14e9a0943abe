"""Observations of structured spaces as flat vectors, one or a batch, without the environment.

A policy keeps the description of its observation space, so that it takes what the environment
gives: dicts, tuples, numbers of a Discrete. The vectors are those of `gymnasium.spaces.flatten`.

    Box                         ["box", [shape]]
    Discrete                    ["discrete", n, start]             one-hot
    MultiDiscrete               ["multi_discrete", [n, ...], [start, ...]]   one-hot each
    MultiBinary                 ["multi_binary", [shape]]
    Tuple                       ["tuple", [parts]]
    Dict                        ["dict", {name: part}]             in the order of its keys
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Description = list[Any]


class NotThisSpace(ValueError):
    """A value that is no observation of a space."""


def describe_space(space: gymnasium.Space[Any]) -> Description | None:
    """The description of a space; None if it has other parts than those above."""
    match space:
        case spaces.Box():
            return ["box", list(space.shape)]
        case spaces.Discrete():
            return ["discrete", int(space.n), int(space.start)]
        case spaces.MultiDiscrete():
            sizes, starts = space.nvec.reshape(-1), np.asarray(space.start).reshape(-1)
            return ["multi_discrete", sizes.tolist(), starts.tolist()]
        case spaces.MultiBinary():
            return ["multi_binary", list(space.shape)]
        case spaces.Tuple():
            parts = [describe_space(part) for part in space.spaces]
            return None if None in parts else ["tuple", parts]
        case spaces.Dict():
            named = {name: describe_space(part) for name, part in space.spaces.items()}
            return None if None in named.values() else ["dict", named]
        case _:
            return None


def flat_size(description: Any) -> int:
    """Numbers in a flat observation; ValueError if the description makes no sense."""
    match description:
        case ["box" | "multi_binary", list(shape)] if all(map(_is_size, shape)):
            return int(np.prod(shape, dtype=np.int64))
        case ["discrete", n, start] if _is_size(n) and type(start) is int:
            return n
        case ["multi_discrete", list(sizes), list(starts)] if (
            len(sizes) == len(starts)
            and all(map(_is_size, sizes))
            and all(type(start) is int for start in starts)
        ):
            return sum(sizes)
        case ["tuple", list(parts)]:
            return sum(map(flat_size, parts))
        case ["dict", dict(parts)]:
            return sum(map(flat_size, parts.values()))
        case _:
            raise ValueError("it describes no space of observations")


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 22


def flatten_observation(description: Description, observation: Any) -> np.ndarray:
    """An observation as a vector, or a batch of them as rows; NotThisSpace if it is neither."""
    found = _flatten(description, observation, batch=False)
    if found is None:
        found = _flatten(description, observation, batch=True)
    if found is None:
        raise NotThisSpace("it is no observation of the policy's environment")
    return found


def _flatten(description: Description, value: Any, batch: bool) -> np.ndarray | None:
    """The vector of a value, or with `batch` the rows of several; None if it does not fit."""
    kind = description[0]
    if kind == "dict":
        named: dict[str, Description] = description[1]
        if not isinstance(value, dict) or value.keys() != named.keys():
            return None
        return _joined([_flatten(part, value[name], batch) for name, part in named.items()])
    if kind == "tuple":
        parts: list[Description] = description[1]
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            return None
        pairs = zip(parts, value, strict=True)
        return _joined([_flatten(part, item, batch) for part, item in pairs])
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    axes = array.shape[1:] if batch else array.shape
    if (batch and array.ndim == 0) or array.dtype.kind not in "biuf":
        return None
    lead = array.shape[:1] if batch else ()
    if kind in ("box", "multi_binary"):
        return array.reshape(*lead, -1).astype(np.float32) if list(axes) == description[1] else None
    sizes, starts = description[1:]
    if kind == "discrete":
        if axes not in ((), (1,)):
            return None
        sizes, starts = [sizes], [starts]
    indices = array.reshape(*lead, -1)
    if indices.shape[-1] != len(sizes):
        return None
    indices = indices - np.asarray(starts)
    if (indices < 0).any() or (indices >= np.asarray(sizes)).any():
        return None
    hot = [np.eye(size, dtype=np.float32)[indices[..., place].astype(np.int64)]
           for place, size in enumerate(sizes)]  # fmt: skip
    return np.concatenate(hot, axis=-1)


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Vectors, or equally many rows, side by side; None if one is missing."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.shape[:-1] for part in known}) > 1:
        return None
    return np.concatenate(known, axis=-1) if known else np.zeros(0, np.float32)
