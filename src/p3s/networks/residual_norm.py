"""Residual blocks of unit weights with batch normalization, as FlashSAC has them.

    stream <- dense(norm(inputs))                                        to the blocks' width d
    for every block
        stream <- stream + activate(norm(dense(activate(norm(dense(stream))))))    d -> 4 d -> d
    outputs <- dense(RMS norm(stream))

The incoming weights of every unit have norm 1, as in `batch_norm.py`. So has what a norm multiplies
with and adds, per unit: the squares of scale and shift together sum up to the width. Only the last
layer has a bias.

Norms are those of `batch_norm.py` with FlashSAC's constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.errors import UserError
from p3s.networks.batch_norm import SMALLEST_NORM, unit_columns
from p3s.networks.batch_renorm import init_norm, normalize
from p3s.networks.layers import ACTIVATIONS, features, init_mlp, layer_normalize
from p3s.networks.models import Network
from p3s.networks.products import product
from p3s.types import Params, Shape

EXPANSION = 4
"""A block's inner width, in outer ones."""
NORM_EPSILON = 1e-5
RMS_EPSILON = 1e-6


def rms_normalize(inputs: jax.Array, scale: jax.Array) -> jax.Array:
    """Inputs over the root of their mean square, over the last axis (Zhang and Sennrich 2019)."""
    mean_square = jnp.mean(inputs**2, axis=-1, keepdims=True)
    return inputs * jax.lax.rsqrt(mean_square + RMS_EPSILON) * scale


def unit_norm(norm: Params) -> Params:
    """A norm whose scale and shift, (..., width), have squares that sum up to the width."""
    learned = {name: norm[name] for name in ("scale", "shift") if name in norm}
    squares = sum(jnp.sum(part**2, axis=-1, keepdims=True) for part in learned.values())
    factor = norm["scale"].shape[-1] ** 0.5 / jnp.maximum(jnp.sqrt(squares), SMALLEST_NORM)
    return {**norm, **{name: part * factor for name, part in learned.items()}}


@dataclass(frozen=True, kw_only=True)
class ResidualNorm(Network):
    """Residual blocks of unit weights; one of `hidden_sizes` for each, all of them alike."""

    name: ClassVar[str] = "residual_norm"
    soft_log_std: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        width, *others = self.hidden_sizes or (0,)
        if width == 0 or any(other != width for other in others):
            found = "-".join(map(str, self.hidden_sizes)) or "none"
            raise UserError(
                f"network residual_norm has blocks of one width, such as 256-256, not {found}"
            )
        sizes = [prod(shape) for shape in shapes]
        inner = [size for _ in self.hidden_sizes for size in (EXPANSION * width, width)]
        widths = [width, *inner]
        layers = init_mlp(key, sizes, widths, output_size, self.initialization, self.layer_norm)
        for layer in layers[:-1]:
            del layer["bias"]
        for name in layers[0].keys() - {"weight"}:  # no activation follows
            del layers[0][name]
        params = {
            "layers": layers,
            "norms": [init_norm(sum(sizes)), *map(init_norm, inner)],
            "last_norm": {"scale": jnp.ones(width, jnp.float32)},
        }
        return self.project(params)

    def apply(self, params: Params, *inputs: jax.Array, train: bool) -> tuple[jax.Array, Params]:
        first, *inner, last = params["layers"]
        activate = ACTIVATIONS[self.activation]
        pass_norm = partial(
            normalize, train=train, warm_up=None, epsilon=NORM_EPSILON, unbiased=True
        )
        stream, after = pass_norm(
            params["norms"][0], features(*inputs, scale_images=self.scale_images)
        )
        stream, norms = product(stream, first["weight"], self.precision), [after]
        block = stream
        for index, (layer, norm) in enumerate(zip(inner, params["norms"][1:], strict=True)):
            block, after = pass_norm(norm, product(block, layer["weight"], self.precision))
            norms.append(after)
            if "scale" in layer:
                block = layer_normalize(block, layer["scale"], layer["shift"])
            block = activate(block)
            if index % 2:
                stream = block = stream + block
        stream = rms_normalize(stream, params["last_norm"]["scale"])
        outputs = product(stream, last["weight"], self.precision) + last["bias"]
        return outputs, {**params, "norms": norms}

    def project(self, params: Params) -> Params:
        layers = [{**layer, "weight": unit_columns(layer["weight"])} for layer in params["layers"]]
        return {
            "layers": layers,
            "norms": [unit_norm(norm) for norm in params["norms"]],
            "last_norm": unit_norm(params["last_norm"]),
        }
