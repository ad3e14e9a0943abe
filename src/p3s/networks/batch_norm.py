"""Dense layers of unit weights with batch normalization, as XQC has them (Palenicek et al. 2026).

    inputs -> norm, then for every hidden layer: dense -> norm -> activation, then a dense layer

The incoming weights of every unit, and of every output, are kept at norm 1: a gradient step, a
mutation or an average is followed by `project`. A norm makes the scale of the weights before it
meaningless, except that gradients shrink as weights grow; at norm 1 the step size stays what it is.
Hidden layers have no bias, since the norm after them has a shift. The norm of the inputs has no
shift, since the next norm would take it away.

Norms are those of `batch_renorm.py` without the correction towards the running statistics. These
are carried in the same way, and the export folds norms into the dense layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.networks.batch_renorm import fold, init_norm, normalize, scale_and_shift
from p3s.networks.layers import (
    ACTIVATIONS,
    Dropout,
    Layers,
    features,
    init_mlp,
    layer_normalize,
)
from p3s.networks.models import Network
from p3s.networks.products import product
from p3s.types import Params, Shape

SMALLEST_NORM = 1e-12


def unit_columns(weight: jax.Array) -> jax.Array:
    """Weights, (..., inputs, units), of which every unit's have norm 1."""
    norms = jnp.linalg.norm(weight, axis=-2, keepdims=True)
    return weight / jnp.maximum(norms, SMALLEST_NORM)


def fold_after(layer: dict[str, jax.Array], norm: Params) -> dict[str, jax.Array]:
    """A dense layer that does what this layer and a norm in evaluation mode do."""
    scale, shift = scale_and_shift(norm)
    return {**layer, "weight": layer["weight"] * scale, "bias": layer["bias"] * scale + shift}


@dataclass(frozen=True, kw_only=True)
class BatchNorm(Network):
    """Dense layers of unit weights, batch normalization before the first and every activation."""

    name: ClassVar[str] = "batch_norm"
    has_dropout: ClassVar[bool] = True

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        sizes = [prod(shape) for shape in shapes]
        layers = init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )
        for layer in layers[:-1]:
            del layer["bias"]
        norms = [init_norm(sum(sizes), shifts=False), *map(init_norm, self.hidden_sizes)]
        return self.project({"layers": layers, "norms": norms})

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Params]:
        *hidden, last = params["layers"]
        first, *others = params["norms"]
        stream, after = normalize(
            first, features(*inputs, scale_images=self.scale_images), train, None
        )
        norms = [after]
        for index, (layer, norm) in enumerate(zip(hidden, others, strict=True)):
            stream = product(stream, layer["weight"], self.precision)
            if dropout is not None:
                stream = dropout.apply(stream, index)
            stream, after = normalize(norm, stream, train, None)
            norms.append(after)
            if "scale" in layer:
                stream = layer_normalize(stream, layer["scale"], layer["shift"])
            stream = ACTIVATIONS[self.activation](stream)
        outputs = product(stream, last["weight"], self.precision) + last["bias"]
        return outputs, {**params, "norms": norms}

    def project(self, params: Params) -> Params:
        layers = [{**layer, "weight": unit_columns(layer["weight"])} for layer in params["layers"]]
        return {**params, "layers": layers}

    def dense(self, params: Params) -> Layers:
        first, *others = params["norms"]
        *hidden, last = params["layers"]
        without = [{**layer, "bias": jnp.zeros(layer["weight"].shape[-1])} for layer in hidden]
        start, *following = [*without, last]
        layers = [fold(first, start), *following]
        return [*map(fold_after, layers, others), layers[-1]]
