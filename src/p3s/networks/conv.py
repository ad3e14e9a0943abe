"""The network for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.errors import UserError
from p3s.networks.layers import (
    Dropout,
    Initialization,
    Layers,
    apply_mlp,
    features,
    init_mlp,
    pixel_values,
)
from p3s.networks.models import Network
from p3s.networks.products import Precision, product
from p3s.types import ImageAxes, Params, Shape, channels_first

Encoder = tuple[tuple[int, int, int], ...]
"""Channels, kernel and stride of each convolution; the stride divides the kernel."""
NATURE_ENCODER: Encoder = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""That of Mnih et al. 2015."""
LEAST_UNPADDED = 36
"""Pixels along an axis from which on no place of the encoder reaches beyond a whole image."""


@dataclass(frozen=True, kw_only=True)
class Conv(Network):
    """Three convolutions on the image (Mnih et al. 2015), then dense layers on all inputs."""

    name: ClassVar[str] = "conv"
    has_dropout: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        if len(shapes[0]) != 3:
            raise UserError(
                "network conv takes images: choose --network mlp for this environment (multi for "
                "images in a Dict or Tuple)"
            )
        shape = last_channels(shapes[0], self.image_axes)
        encoder, size = init_convolutions(key, shape, NATURE_ENCODER, self.initialization)
        sizes = [size, *(prod(shape) for shape in shapes[1:])]
        head = init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )
        return {"encoder": encoder, "head": head}

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Params]:
        image, *others = inputs
        batch = image.shape[:-3]
        image = pixel_values(image.reshape(-1, *image.shape[-3:]), self.scale_images)
        image = with_channels_last(image, self.image_axes)
        image = apply_convolutions(params["encoder"], image, NATURE_ENCODER, self.precision)
        encoded = image.reshape(*batch, -1)
        joined = features(encoded, *others)
        head = apply_mlp(params["head"], joined, self.activation, self.precision, dropout)
        return head, params

    def head(self, params: Params) -> Layers:
        return params["head"]

    def with_head(self, params: Params, head: Layers) -> Params:
        return {**params, "head": head}


def init_convolutions(
    key: jax.Array, shape: Shape, encoder: Encoder, initialization: Initialization
) -> tuple[Layers, int]:
    """Random layers for images of this shape, channels last, and how many numbers they give."""
    height, width, channels = shape
    layers = []
    for index, (filters, kernel, stride) in enumerate(encoder):
        fan_in = kernel * kernel * channels
        own_key = jax.random.fold_in(key, 1000 + index)
        layers += init_mlp(own_key, [fan_in], [], filters, initialization)
        height, width = (num_places(size, kernel, stride) for size in (height, width))
        channels = filters
    return layers, height * width * channels


def apply_convolutions(
    layers: Layers, images: jax.Array, encoder: Encoder, precision: Precision
) -> jax.Array:
    """Convolutions, each followed by a relu, on (batch, height, width, channels)."""
    for layer, (_, kernel, stride) in zip(layers, encoder, strict=True):
        patches = image_patches(images, kernel, stride)
        rows = patches.reshape(-1, patches.shape[-1])
        rows = product(rows, layer["weight"], precision) + layer["bias"]
        images = jax.nn.relu(rows).reshape(*patches.shape[:-1], -1)
    return images


def last_channels(shape: Shape, axes: ImageAxes) -> Shape:
    """The shape of an image with its channels last; those of a stack of images, joined."""
    *stack, height, width, channels = shape
    if channels_first(shape[-3:], axes):
        channels, height, width = shape[-3:]
    return height, width, channels * prod(stack)


def with_channels_last(images: jax.Array, axes: ImageAxes) -> jax.Array:
    """Images, or stacks of them, as (batch, height, width, channels)."""
    if channels_first(images.shape[-3:], axes):
        images = jnp.moveaxis(images, -3, -1)
    if images.ndim == 4:
        return images
    images = jnp.moveaxis(images, 1, -2)
    return images.reshape(*images.shape[:3], -1)


def num_places(size: int, kernel: int, stride: int) -> int:
    """Places of a convolution along an axis; the last one may reach beyond the end."""
    return max(0, -(-(size - kernel) // stride)) + 1


def image_patches(image: jax.Array, kernel: int, stride: int) -> jax.Array:
    """What a convolution sees at each place, (batch, height, width, kernel² channels).

    A convolution is then one matrix product, which stays fast under a vmap over learners, where
    XLA's grouped convolutions do not. The stride divides the kernel: blocks of stride × stride
    pixels become channels first, so that few slices are left to join. Zeros are added at the bottom
    and on the right where the last place reaches beyond the image, so that no pixel goes unseen.
    """
    count, height, width, channels = image.shape
    rows, columns = num_places(height, kernel, stride), num_places(width, kernel, stride)
    blocks = kernel // stride
    down, across = rows + blocks - 1, columns + blocks - 1
    missing = (down * stride - height, across * stride - width)
    image = jnp.pad(image, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    image = image.reshape(count, down, stride, across, stride, channels)
    image = image.transpose(0, 1, 3, 2, 4, 5).reshape(count, down, across, -1)
    slices = [image[:, i : i + rows, j : j + columns] for i in range(blocks) for j in range(blocks)]
    return jnp.concatenate(slices, axis=-1)
