"""Observations of structured spaces as one array, one or a batch, without the environment.

A policy keeps the description of its observation space, so that it takes what the environment
gives: dicts, tuples, numbers of a Discrete. The vectors are those of `gymnasium.spaces.flatten`,
with pixels divided by 255 unless an algorithm leaves them as they are (`scale_images`). For an
algorithm that reads images beside numbers (`reads_parts`) images stay what they are, and the array
is one of bytes: those of the vector of all other parts, then those of the images.

    Box                         ["box", [shape]]
    Box of uint8 from 0 to 255  ["pixels", [shape]]               in [0, 1]
    Box of uint8, 2 to 4 axes   ["image", [shape]]                where images are kept
    Discrete                    ["discrete", n, start]             one-hot
    MultiDiscrete               ["multi_discrete", [n, ...], [start, ...]]   one-hot each
    MultiBinary                 ["multi_binary", [shape]]
    Tuple                       ["tuple", [parts]]
    Dict                        ["dict", {name: part}]             in the order of its keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Description = list[Any]
Leaf = tuple[str, Description, Any]
"""An innermost part of an observation: its name, its description, its value."""


class NotThisSpace(ValueError):
    """A value that is not an observation of a space."""


PIXEL_SCALE = np.float32(1 / 255)


def holds_pixels(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is of bytes that use their whole range, as pixels do."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is of uint8 images: gray ones of two axes, or with channels."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def is_image_part(space: gymnasium.Space[Any]) -> bool:
    """Whether a part of an observation is an image, or a stack of them with four axes."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return is_image(space) or len(space.shape) == 4


def has_image_parts(space: gymnasium.Space[Any]) -> bool:
    """Whether a space has images as parts, which a network may read by themselves."""
    return not is_image(space) and any(is_image_part(part) for _, part in parts_of(space))


def image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an image as networks see it: a gray one gets its channel."""
    return (*shape, 1) if len(shape) == 2 else tuple(shape)


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


def describe_space(
    space: gymnasium.Space[Any], scale_images: bool = True, keeps_images: bool = False
) -> Description | None:
    """The description of a space; None if it has other parts than those above."""
    about = scale_images, keeps_images
    match space:
        case spaces.Box() if keeps_images and is_image_part(space):
            return ["image", list(image_shape(space.shape))]
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
            parts = [describe_space(part, *about) for part in space.spaces]
            return None if None in parts else ["tuple", parts]
        case spaces.Dict():
            named = {name: describe_space(part, *about) for name, part in space.spaces.items()}
            return None if None in named.values() else ["dict", named]
        case _:
            return None


def flat_size(description: Any) -> int:
    """Numbers beside the images of an observation; ValueError if the description is invalid."""
    match description:
        case ["image", list(shape)] if len(shape) in (3, 4) and all(map(_is_size, shape)):
            return 0
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


def images_in(description: Description, name: str = "") -> dict[str, tuple[int, ...]]:
    """Names and shapes of the images in a valid description, in the order of the flat array."""
    kind, about = description[:2]
    if kind == "image":
        return {name: tuple(about)}
    if kind not in ("dict", "tuple"):
        return {}
    named = about.items() if kind == "dict" else enumerate(about)
    inner = [images_in(part, f"{name}.{key}" if name else str(key)) for key, part in named]
    return {key: shape for part in inner for key, shape in part.items()}


def flatten_observation(
    description: Description, observation: Any, batches: bool = True
) -> np.ndarray:
    """An observation as a vector, or a batch of them as rows; NotThisSpace if it is neither."""
    leaves = list(_leaves(description, observation))
    for batch in (False, True)[: 1 + batches]:
        arrays = [_flat_leaf(part, value, batch) for _, part, value in leaves]
        known = [array for array in arrays if array is not None]
        if len(known) == len(arrays) and len({array.shape[:-1] for array in known}) < 2:
            return _joined(known)
        if not batches:
            name, part, value = leaves[[array is None for array in arrays].index(True)]
            raise NotThisSpace(_misfit(name, part, value))
    raise NotThisSpace("not an observation of the policy's environment")


def _leaves(description: Description, value: Any, name: str = "") -> Iterator[Leaf]:
    """The innermost parts of an observation, one or a batch; NotThisSpace if some are missing."""
    kind, about = description[:2]
    if kind == "dict":
        if not isinstance(value, dict) or value.keys() != about.keys():
            raise NotThisSpace(f"{name or 'it'} is no dict of {', '.join(about)}")
        pairs = [(key, part, value[key]) for key, part in about.items()]
    elif kind == "tuple":
        if not isinstance(value, tuple | list) or len(value) != len(about):
            raise NotThisSpace(f"{name or 'it'} is no tuple of {len(about)}")
        pairs = [(key, *pair) for key, pair in enumerate(zip(about, value, strict=True))]
    else:
        yield name, description, value
        return
    for key, part, item in pairs:
        yield from _leaves(part, item, f"{name}.{key}" if name else str(key))


def _misfit(name: str, description: Description, value: Any) -> str:
    """What is wrong with an innermost part of one observation."""
    kind, *about = description
    array, part = np.asarray(value, object), name or "an observation"
    if kind in ("discrete", "multi_discrete"):
        return f"{part} is {array}, its space {kind} of {about[0]} from {about[1]}"
    with suppress(ValueError):  # rows of different lengths
        array = np.asarray(value)
    pixels = " of whole numbers from 0 to 255" if kind == "image" else ""
    found = f"shape {list(array.shape)} of {array.dtype}"
    return f"{part} has {found}, its space shape {about[0]}{pixels}"


def _flat_leaf(description: Description, value: Any, batch: bool) -> np.ndarray | None:
    """An innermost part as a vector, or several as rows; bytes for images; None for a misfit."""
    kind, *about = description
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    if kind == "image":
        return _flat_image(array, about[0], batch)
    axes = array.shape[1:] if batch else array.shape
    if (batch and array.ndim == 0) or array.dtype.kind not in "biuf":
        return None
    lead = array.shape[:1] if batch else ()
    if kind in ("box", "pixels", "multi_binary"):
        if list(axes) != about[0]:
            return None
        flat = array.reshape(*lead, -1).astype(np.float32)
        return flat * PIXEL_SCALE if kind == "pixels" else flat
    sizes, starts = about
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


def _flat_image(array: np.ndarray, shape: list[int], batch: bool) -> np.ndarray | None:
    """The bytes of an image, or of several; None for another shape, or what is no pixels."""
    axes = len(shape) - (shape[-1] == 1 and array.ndim == len(shape) - 1 + batch)
    if array.ndim != axes + batch or list(array.shape[batch:]) != shape[:axes]:
        return None
    try:
        return as_bytes(array).reshape(*array.shape[:batch], -1)
    except ValueError:
        return None


def as_bytes(image: Any) -> np.ndarray:
    """An image as uint8; ValueError for numbers that are none."""
    array = np.asarray(image)
    if array.dtype == np.uint8:
        return array
    if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() > 255:
        raise ValueError(f"an image of {array.dtype} is not of whole numbers from 0 to 255")
    return array.astype(np.uint8)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Vectors, or rows, side by side; with images as bytes, those of all numbers first."""
    numbers = [part for part in parts if part.dtype == np.float32]
    images = [part for part in parts if part.dtype == np.uint8]
    lead = parts[0].shape[:-1] if parts else ()
    vector = np.concatenate([np.zeros((*lead, 0), np.float32), *numbers], axis=-1)
    return np.concatenate([vector.view(np.uint8), *images], axis=-1) if images else vector
