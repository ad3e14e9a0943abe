"""What becomes of an observation on its way to the networks, as a line to tell the user.

observation: camera 64×64×3 (pixels / 255) and joints 7, flattened to 12,295 numbers
observation: image 7×7×20, channels last, pixels / 255, for network conv
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.envs.flattening import holds_pixels, parts_of
from p3s.networks.conv import LEAST_UNPADDED, Conv
from p3s.types import ImageAxes, channels_first

MOST_PARTS = 8
"""Parts of an observation that are named one by one."""


def describe_observation(env: Adapter, algorithm: Algorithm) -> str | None:
    """How the learners see an observation; None if it is a vector, which they see as it is."""
    space = env.env.observation_space
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return None
    scaled = algorithm.scale_images
    if env.env_spec.observation.is_image:
        return f"observation: {_image(space, env.env_spec.features.shape, algorithm)}"
    parts = [_part(name, part, scaled) for name, part in parts_of(space)]
    if len(parts) > MOST_PARTS:
        parts = [*parts[: MOST_PARTS - 1], f"{len(parts) - MOST_PARTS + 1} others"]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"observation: {listed}, flattened to {spaces.flatdim(space):,} numbers"


def _part(name: str, space: gymnasium.Space[Any], scaled: bool) -> str:
    if isinstance(space, spaces.Discrete):
        size = f"one of {space.n}"
    else:
        size = "×".join(map(str, space.shape or (1,)))
    pixels = " (pixels / 255)" if scaled and holds_pixels(space) else ""
    return f"{name} {size}{pixels}".strip()


def _image(space: gymnasium.Space[Any], shape: tuple[int, ...], algorithm: Algorithm) -> str:
    assert space.shape is not None
    words = ["image " + "×".join(map(str, space.shape))]
    network = getattr(algorithm, "network", "mlp")
    convolves = network in ("auto", Conv.name)
    axes: ImageAxes = getattr(algorithm, "image_axes", "auto")
    first = channels_first(shape, axes)
    if convolves and len(space.shape) == 3:
        guess = ", a guess (--image-axes)" if axes == "auto" else ""
        words.append(f"channels {'first' if first else 'last'}{guess}")
    words.append(
        "pixels / 255 (--no-scale-images)" if algorithm.scale_images else "pixels as they are"
    )
    if not convolves:
        return ", ".join([*words, f"flattened to {spaces.flatdim(space):,} numbers"])
    height, width = shape[1:] if first else shape[:2]
    if min(height, width) < LEAST_UNPADDED:
        words.append(
            f"padded with zeros for network conv, which wants {LEAST_UNPADDED}×{LEAST_UNPADDED} "
            "(--network mlp)"
        )
    return ", ".join(words)
