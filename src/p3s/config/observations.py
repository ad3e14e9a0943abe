"""What becomes of an observation on its way to the networks, as a line to tell the user.

observation: camera 64×64×3 (channels last) and joints 7 for network multi, channels a guess
    (--image-axes), pixels / 255 (--no-scale-images)
observation: image 7×7×20, channels last, pixels / 255, for network conv
observation: a 2×3 and b 7, flattened to 13 numbers
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.envs.flattening import has_image_parts, holds_pixels, is_image_part, parts_of
from p3s.networks import LEAST_UNPADDED, Conv, Multi
from p3s.types import ImageAxes, channels_first

MOST_PARTS = 8
"""Parts of an observation that are named one by one."""


def describe_observation(env: Adapter, algorithm: Algorithm) -> str | None:
    """How the learners see an observation; None if it is a vector, which they see as it is."""
    space = env.env.observation_space
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return None
    if env.env_spec.observation.is_image:
        return f"observation: {_image(space, env.env_spec.features.shape, algorithm)}"
    apart = bool(env.env_spec.observation.images)
    parts = [_part(name, part, algorithm, apart) for name, part in parts_of(space)]
    if len(parts) > MOST_PARTS:
        parts = [*parts[: MOST_PARTS - 1], f"{len(parts) - MOST_PARTS + 1} others"]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    if apart:
        network = getattr(algorithm, "network", "auto")
        guess = ["channels a guess (--image-axes)"] if _axes(algorithm) == "auto" else []
        named = f"{listed} for network {Multi.name if network == 'auto' else network}"
        return f"observation: {', '.join([named, *guess, _scaling(algorithm)])}"
    line = f"observation: {listed}, flattened to {spaces.flatdim(space):,} numbers"
    could = hasattr(algorithm, "network") and has_image_parts(space)
    return f"{line} (--network {Multi.name} reads images as such)" if could else line


def _part(name: str, space: gymnasium.Space[Any], algorithm: Algorithm, apart: bool) -> str:
    if isinstance(space, spaces.Discrete):
        size = f"one of {space.n}"
    else:
        size = "×".join(map(str, space.shape or (1,)))
    about = ""
    if apart and is_image_part(space):
        assert space.shape is not None
        if len(space.shape) > 2:
            first = channels_first(space.shape[-3:], _axes(algorithm))
            about = f" (channels {'first' if first else 'last'})"
    elif algorithm.scale_images and holds_pixels(space):
        about = " (pixels / 255)"
    return f"{name} {size}{about}".strip()


def _axes(algorithm: Algorithm) -> ImageAxes:
    return getattr(algorithm, "image_axes", "auto")


def _scaling(algorithm: Algorithm) -> str:
    return "pixels / 255 (--no-scale-images)" if algorithm.scale_images else "pixels as they are"


def _image(space: gymnasium.Space[Any], shape: tuple[int, ...], algorithm: Algorithm) -> str:
    assert space.shape is not None
    words = ["image " + "×".join(map(str, space.shape))]
    network = getattr(algorithm, "network", "mlp")
    convolves = network in ("auto", Conv.name, Multi.name)
    axes = _axes(algorithm)
    first = channels_first(shape, axes)
    if convolves and len(space.shape) == 3:
        guess = ", a guess (--image-axes)" if axes == "auto" else ""
        words.append(f"channels {'first' if first else 'last'}{guess}")
    words.append(_scaling(algorithm))
    if not convolves:
        return ", ".join([*words, f"flattened to {spaces.flatdim(space):,} numbers"])
    height, width = shape[1:] if first else shape[:2]
    if network != Multi.name and min(height, width) < LEAST_UNPADDED:
        words.append(
            f"padded with zeros for network conv, which wants {LEAST_UNPADDED}×{LEAST_UNPADDED} "
            f"(--network {Multi.name} or mlp)"
        )
    return ", ".join(words)
