"""The network for observations of several kinds: an encoder per part, and dense layers on all.

    each image     convolutions by its size, a dense layer
    all numbers    a dense layer
    joined         with the action, if it is an input: dense layers of `hidden_sizes`

What a part becomes has the width of the first hidden layer, so thousands of features of an image
do not drown seven joints. The observation is one row of bytes, which the replay keeps as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.errors import UserError
from p3s.networks.conv import (
    LEAST_UNPADDED,
    NATURE_ENCODER,
    Encoder,
    apply_convolutions,
    init_convolutions,
    last_channels,
    with_channels_last,
)
from p3s.networks.layers import (
    Dropout,
    Layers,
    apply_hidden,
    apply_mlp,
    features,
    init_mlp,
    pixel_values,
)
from p3s.networks.models import Network
from p3s.types import FLOAT_BYTES, ImageAxes, Params, Shape

ENCODERS: tuple[tuple[int, Encoder], ...] = (
    (LEAST_UNPADDED, NATURE_ENCODER),
    (16, ((32, 4, 2), (64, 4, 2))),
    (0, ((32, 3, 1), (64, 3, 1))),
)
"""The encoder of images whose shorter side has at least so many pixels; the last one is for grids,
where one pixel is one thing."""


def encoder_of(image: Shape, axes: ImageAxes) -> Encoder:
    """The convolutions for images of this shape."""
    side = min(last_channels(image, axes)[:2])
    return next(encoder for least, encoder in ENCODERS if side >= least)


def unpacked(packed: jax.Array, images: Sequence[Shape]) -> tuple[jax.Array, list[jax.Array]]:
    """Numbers and images of packed observations, (..., bytes)."""
    batch, start = packed.shape[:-1], packed.shape[-1] - sum(map(prod, images))
    words = packed[..., :start].reshape(*batch, -1, FLOAT_BYTES)
    numbers = jax.lax.bitcast_convert_type(words, jnp.float32)
    found = []
    for shape in images:
        found.append(packed[..., start : start + prod(shape)].reshape(*batch, *shape))
        start += prod(shape)
    return numbers, found


@dataclass(frozen=True, kw_only=True)
class Multi(Network):
    """An encoder for each image and one for all numbers, then dense layers on what they give."""

    name: ClassVar[str] = "multi"
    has_dropout: ClassVar[bool] = True
    reads_parts: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        images = self._images(shapes[0])
        if not images:
            raise UserError("network multi takes images: choose --network mlp for this environment")
        width = [*self.hidden_sizes, output_size][0]
        encoders = []
        for index, shape in enumerate(images):
            own_key = jax.random.fold_in(key, 2000 + index)
            about = last_channels(shape, self.image_axes), encoder_of(shape, self.image_axes)
            convolutions, size = init_convolutions(own_key, *about, self.initialization)
            dense = self._dense(own_key, size, width)
            encoders.append({"convolutions": convolutions, "dense": dense})
        widths, params = [width] * len(images), {"images": encoders}
        if num_numbers := (prod(shapes[0]) - sum(map(prod, images))) // FLOAT_BYTES:
            params["numbers"] = self._dense(jax.random.fold_in(key, 3000), num_numbers, width)
            widths.append(width)
        sizes = widths + [prod(shape) for shape in shapes[1:]]
        head = init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )
        return {**params, "head": head}

    def _images(self, shape: Shape) -> Sequence[Shape]:
        """Shapes of the images in an observation of this shape, which may be one itself."""
        return self.images if len(shape) == 1 else [shape]

    def _dense(self, key: jax.Array, size: int, width: int) -> Layers:
        """A layer with the activation after it, as the first of two."""
        return init_mlp(key, [size], [width], 1, self.initialization, self.layer_norm)[:1]

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Params]:
        observation, *others = inputs
        if self.images:
            numbers, images = unpacked(observation, self.images)
        else:
            numbers, images = None, [observation]
        shapes = self.images or [observation.shape[-3:]]
        parts = zip(params["images"], images, shapes, strict=True)
        encoded = [self._encode(*part) for part in parts]
        if "numbers" in params:
            assert numbers is not None
            encoded.append(
                apply_hidden(params["numbers"], numbers, self.activation, self.precision)
            )
        joined = features(*encoded, *others)
        head = apply_mlp(params["head"], joined, self.activation, self.precision, dropout)
        return head, params

    def _encode(self, encoder: Params, image: jax.Array, shape: Shape) -> jax.Array:
        batch = image.shape[: image.ndim - len(shape)]
        pixels = pixel_values(image.reshape(-1, *shape), self.scale_images)
        pixels = with_channels_last(pixels, self.image_axes)
        layers = encoder_of(shape, self.image_axes)
        found = apply_convolutions(encoder["convolutions"], pixels, layers, self.precision)
        flat = found.reshape(*batch, -1)
        return apply_hidden(encoder["dense"], flat, self.activation, self.precision)

    def head(self, params: Params) -> Layers:
        return params["head"]

    def with_head(self, params: Params, head: Layers) -> Params:
        return {**params, "head": head}
