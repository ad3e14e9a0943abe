"""Dense layers with batch renormalization (Ioffe 2017), as CrossQ has them (Bhatt et al. 2024).

    inputs -> norm, then for every hidden layer: dense -> activation -> norm, then a dense layer

In training mode a norm uses the minibatch's own mean and variance; after `warm_up` passes it
corrects them towards the running ones:

    r = clip(σ_B / σ_run, 1/3, 3),  d = clip((μ_B - μ_run) / σ_run, ±5)        no gradient
    mean = μ_B - d √var_B / r,      variance = var_B / r²

In evaluation mode it uses the running ones. These and the count of passes are carried: they travel
with a policy into copies, guides and files, and evolution leaves them alone. A norm in evaluation
mode is a scale and a shift, which the export folds into the dense layer after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

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
from p3s.trees import Carried
from p3s.types import Params, Shape

EPSILON = 1e-3
MOMENTUM = 0.99
LARGEST_R, LARGEST_D = 3.0, 5.0
SMALLEST_VARIANCE = 1e-12


def init_norm(size: int, shifts: bool = True) -> Params:
    """Scale and, if it shifts, shift, and the running statistics."""
    shift = {"shift": jnp.zeros(size, jnp.float32)} if shifts else {}
    return {
        "scale": jnp.ones(size, jnp.float32),
        **shift,
        "running": Carried(
            {
                "mean": jnp.zeros(size, jnp.float32),
                "variance": jnp.ones(size, jnp.float32),
                "passes": jnp.int32(0),
            }
        ),
    }


def normalize(
    norm: Params,
    inputs: jax.Array,
    train: bool,
    warm_up: int | None,
    epsilon: float = EPSILON,
    unbiased: bool = False,
) -> tuple[jax.Array, Params]:
    """Normalized inputs, (rows, size), and the norm with its statistics after the pass.

    warm_up: passes of plain batch normalization; None: all of them. unbiased: the running variance
    counts one row less.
    """
    running = norm["running"].value
    mean, variance = running["mean"], running["variance"]
    if train:
        own_mean, own_variance = inputs.mean(axis=0), inputs.var(axis=0)
        mean, variance = own_mean, own_variance
        if warm_up is not None:
            r, d = corrections(own_mean, own_variance, running, warm_up)
            # The square root has no slope at 0, where a unit is dead or an observation constant.
            deviation = jnp.sqrt(jnp.maximum(own_variance, SMALLEST_VARIANCE))
            mean = own_mean - d * deviation / r
            variance = own_variance / r**2
        if unbiased:
            own_variance = own_variance * (len(inputs) / max(len(inputs) - 1, 1))
        running = {
            "mean": MOMENTUM * running["mean"] + (1 - MOMENTUM) * own_mean,
            "variance": MOMENTUM * running["variance"] + (1 - MOMENTUM) * own_variance,
            "passes": running["passes"] + 1,
        }
    outputs = (inputs - mean) * jax.lax.rsqrt(variance + epsilon)
    outputs = outputs * norm["scale"]
    if "shift" in norm:
        outputs = outputs + norm["shift"]
    return outputs, {**norm, "running": Carried(running)}


def corrections(
    mean: jax.Array, variance: jax.Array, running: Params, warm_up: int
) -> tuple[jax.Array, jax.Array]:
    """r and d; 1 and 0 for the first passes."""
    deviation = jnp.sqrt(variance + EPSILON)
    running_deviation = jnp.sqrt(running["variance"] + EPSILON)
    r = jnp.clip(deviation / running_deviation, 1 / LARGEST_R, LARGEST_R)
    d = jnp.clip((mean - running["mean"]) / running_deviation, -LARGEST_D, LARGEST_D)
    warm = running["passes"] >= warm_up
    return jax.lax.stop_gradient((jnp.where(warm, r, 1.0), jnp.where(warm, d, 0.0)))


def scale_and_shift(norm: Params) -> tuple[jax.Array, jax.Array]:
    """What a norm does in evaluation mode: inputs * scale + shift."""
    running = norm["running"].value
    scale = norm["scale"] / jnp.sqrt(running["variance"] + EPSILON)
    return scale, norm.get("shift", 0.0) - running["mean"] * scale


def fold(norm: Params, layer: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """A dense layer that does what a norm in evaluation mode and this layer do."""
    scale, shift = scale_and_shift(norm)
    bias = layer["bias"] + shift @ layer["weight"]
    return {**layer, "weight": scale[:, None] * layer["weight"], "bias": bias}


@dataclass(frozen=True, kw_only=True)
class BatchRenorm(Network):
    """Dense layers with batch renormalization before the first and after every activation."""

    name: ClassVar[str] = "batch_renorm"
    has_dropout: ClassVar[bool] = True
    warm_up: ClassVar[int] = 100_000
    """Passes with plain batch normalization."""

    def init(self, key: jax.Array, shapes: Sequence[Shape], output_size: int) -> Params:
        sizes = [prod(shape) for shape in shapes]
        layers = init_mlp(
            key, sizes, self.hidden_sizes, output_size, self.initialization, self.layer_norm
        )
        norms = [init_norm(size) for size in (sum(sizes), *self.hidden_sizes)]
        return {"layers": layers, "norms": norms}

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Dropout | None = None
    ) -> tuple[jax.Array, Params]:
        stream, norms = features(*inputs, scale_images=self.scale_images), []
        last = len(params["layers"]) - 1
        for index, (layer, norm) in enumerate(zip(params["layers"], params["norms"], strict=True)):
            stream, after = normalize(norm, stream, train, self.warm_up)
            norms.append(after)
            stream = product(stream, layer["weight"], self.precision) + layer["bias"]
            if index == last:
                break
            if dropout is not None:
                stream = dropout.apply(stream, index)
            if "scale" in layer:
                stream = layer_normalize(stream, layer["scale"], layer["shift"])
            stream = ACTIVATIONS[self.activation](stream)
        return stream, {**params, "norms": norms}

    def dense(self, params: Params) -> Layers:
        pairs = zip(params["norms"], params["layers"], strict=True)
        return [fold(norm, layer) for norm, layer in pairs]
