"""Observations of structured spaces as flat vectors, one or a batch, without the environment.

A policy keeps the description of its observation space, so that it takes what the environment
gives: dicts, tuples, numbers of a Discrete. The vectors are those of `gymnasium.spaces.flatten`,
with pixels divided by 255 unless an algorithm leaves them as they are (`scale_images`).

    Box                         ["box", [shape]]
    Box of uint8 from 0 to 255  ["pixels", [shape]]               in [0, 1]
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
    """A value that is not an observation of a space."""


PIXEL_SCALE = np.float32(1 / 255)


def holds_pixels(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is of bytes that use their whole range, as pixels do."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def parts_of(space: gymnasium.Space[Any], name: str = "") -> list[tuple[str, gymnasium.Space[Any]]]:
    """The innermost parts of a space with their names, in the order of the flat vector."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [(name, space)]
    own = space.spaces
    named = own.items() if isinstance(own, dict) else enumerate(own)
    inner = [parts_of(part, f"{name}.{key}" if name else str(key)) for key, part in named]
    return [part for parts in inner for part in parts]


def unread_part(space: gymnasium.Space[Any]) -> str | None:
    """The first part of a space that has no form as numbers, with its name; None without one."""
    for name, part in parts_of(space):
        if isinstance(part, spaces.Text):
            return "text"
        try:
            flat = spaces.flatten_space(part)
        except NotImplementedError:  # a space of the environment's own
            flat = None
        if not isinstance(flat, spaces.Box):
            return f"a {type(part).__name__}" + (f" ({name})" if name else "")
    return None


def pixel_ranges(space: gymnasium.Space[Any]) -> list[tuple[int, int]]:
    """Where pixels are in the flat vector: first and last place, the last not included."""
    found, start = list[tuple[int, int]](), 0
    for _, part in parts_of(space):
        stop = start + spaces.flatdim(part)
        found += [(start, stop)] * holds_pixels(part)
        start = stop
    return found


def scales_pixels(description: Any) -> bool:
    """Whether observations of this description have pixels that are scaled."""
    match description:
        case ["pixels", _]:
            return True
        case ["tuple", list(parts)]:
            return any(map(scales_pixels, parts))
        case ["dict", dict(parts)]:
            return any(map(scales_pixels, parts.values()))
        case _:
            return False


def describe_space(space: gymnasium.Space[Any], scale_images: bool = True) -> Description | None:
    """The description of a space; None if it has other parts than those above."""
    match space:
        case spaces.Box():
            pixels = scale_images and holds_pixels(space)
            return ["pixels" if pixels else "box", list(space.shape)]
        case spaces.Discrete():
            return ["discrete", int(space.n), int(space.start)]
        case spaces.MultiDiscrete():
            sizes, starts = space.nvec.reshape(-1), np.asarray(space.start).reshape(-1)
            return ["multi_discrete", sizes.tolist(), starts.tolist()]
        case spaces.MultiBinary():
            return ["multi_binary", list(space.shape)]
        case spaces.Tuple():
            parts = [describe_space(part, scale_images) for part in space.spaces]
            return None if None in parts else ["tuple", parts]
        case spaces.Dict():
            named = {
                name: describe_space(part, scale_images) for name, part in space.spaces.items()
            }
            return None if None in named.values() else ["dict", named]
        case _:
            return None


def flat_size(description: Any) -> int:
    """Numbers in a flat observation; ValueError if the description is invalid."""
    match description:
        case ["box" | "pixels" | "multi_binary", list(shape)] if all(map(_is_size, shape)):
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
            raise ValueError("not the description of an observation space")


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 22


def flatten_observation(description: Description, observation: Any) -> np.ndarray:
    """An observation as a vector, or a batch of them as rows; NotThisSpace if it is neither."""
    found = _flatten(description, observation, batch=False)
    if found is None:
        found = _flatten(description, observation, batch=True)
    if found is None:
        raise NotThisSpace("not an observation of the policy's environment")
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
    if kind in ("box", "pixels", "multi_binary"):
        if list(axes) != description[1]:
            return None
        flat = array.reshape(*lead, -1).astype(np.float32)
        return flat * PIXEL_SCALE if kind == "pixels" else flat
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
