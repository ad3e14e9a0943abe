"""The network for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.errors import UserError
from p3s.networks.layers import Dropout, Shape, apply_mlp, features, init_mlp, pixel_values
from p3s.networks.models import Network
from p3s.networks.products import product
from p3s.types import Params, channels_first

NATURE_ENCODER = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each convolution (Mnih et al. 2015)."""
LEAST_UNPADDED = 36
"""Pixels along an axis from which on no place of the encoder reaches beyond a whole image."""


@dataclass(frozen=True, kw_only=True)
class Conv(Network):
    """Three convolutions on the image (Mnih et al. 2015), then dense layers on all inputs."""

    name: ClassVar[str] = "conv"
    has_dropout: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        if len(shapes[0]) != 3:
            raise UserError("network conv takes images: choose --network mlp for this environment")
        height, width, channels = shapes[0]
        if channels_first(shapes[0], self.image_axes):
            channels, height, width = shapes[0]
        encoder = []
        for index, (filters, kernel, stride) in enumerate(NATURE_ENCODER):
            fan_in = kernel * kernel * channels
            own_key = jax.random.fold_in(key, 1000 + index)
            encoder += init_mlp(own_key, [fan_in], [], filters, self.initialization)
            height, width = (num_places(size, kernel, stride) for size in (height, width))
            channels = filters
        sizes = [height * width * channels, *(prod(shape) for shape in shapes[1:])]
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
        if channels_first(image.shape[1:], self.image_axes):
            image = jnp.moveaxis(image, 1, -1)
        for layer, (_, kernel, stride) in zip(params["encoder"], NATURE_ENCODER, strict=True):
            patches = image_patches(image, kernel, stride)
            rows = patches.reshape(-1, patches.shape[-1])
            rows = product(rows, layer["weight"], self.precision) + layer["bias"]
            image = jax.nn.relu(rows).reshape(*patches.shape[:-1], -1)
        encoded = image.reshape(*batch, -1)
        joined = features(encoded, *others)
        head = apply_mlp(params["head"], joined, self.activation, self.precision, dropout)
        return head, params


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
