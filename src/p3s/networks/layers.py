"""Dense layers and what goes between them, as functions over parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.networks.products import Precision, product

Initialization = Literal["fan_in", "xavier", "xavier_joint", "orthogonal"]
Activation = Literal["relu", "tanh", "elu", "leaky_relu", "gelu", "silu"]
Layers = list[dict[str, jax.Array]]

LAYER_NORM_EPSILON = 1e-5
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "leaky_relu": jax.nn.leaky_relu,
    "gelu": lambda inputs: jax.nn.gelu(inputs, approximate=False),
    "silu": jax.nn.silu,
}


def init_mlp(
    key: jax.Array,
    input_sizes: Sequence[int],
    hidden_sizes: Sequence[int],
    output_size: int,
    initialization: Initialization,
    layer_norm: bool = False,
) -> Layers:
    """Random layers for the concatenation of inputs of the given sizes.

    fan_in: weights and biases U(±1/sqrt(fan_in)), as in TD3's code.
    xavier: weights U(±sqrt(6/(fan_in + fan_out))), zero biases; each input of the first layer
    counts its own fan-in, as if it had its own matrix (the authors' P3S code, Haarnoja's codes).
    xavier_joint: the same with one fan-in for all inputs together (REDQ's code).
    orthogonal: orthogonal weights, zero biases (FlashSAC's code).
    """
    sizes = [sum(input_sizes), *hidden_sizes, output_size]
    layers = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight_key, bias_key = jax.random.split(jax.random.fold_in(key, index))
        if initialization in ("xavier", "xavier_joint"):
            own = index == 0 and initialization == "xavier"
            parts = input_sizes if own else [fan_in]
            bounds = np.repeat([np.sqrt(6 / (part + fan_out)) for part in parts], parts)
            bias_bound = 0.0
        else:
            bounds = np.full(fan_in, 1 / np.sqrt(fan_in))
            bias_bound = 1 / np.sqrt(fan_in)
        if initialization == "orthogonal":
            weight = jax.nn.initializers.orthogonal()(weight_key, (fan_in, fan_out), jnp.float32)
            layers.append({"weight": weight, "bias": jnp.zeros(fan_out, jnp.float32)})
            continue
        weight = jax.random.uniform(weight_key, (fan_in, fan_out), jnp.float32, -1, 1)
        bias = jax.random.uniform(bias_key, (fan_out,), jnp.float32, -1, 1)
        layers.append(
            {
                "weight": weight * bounds[:, None].astype(np.float32),
                "bias": bias * np.float32(bias_bound),
            }
        )
    if layer_norm:
        for layer in layers[:-1]:
            layer["scale"] = jnp.ones_like(layer["bias"])
            layer["shift"] = jnp.zeros_like(layer["bias"])
    return layers


def layer_normalize(inputs: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Layer normalization (Ba et al. 2016) over the last axis."""
    centered = inputs - inputs.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centered**2, axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * scale + shift


class Dropout(NamedTuple):
    """Leave units out at random (Srivastava et al. 2014)."""

    rate: jax.Array | float
    """The share of units that is left out; the others are scaled up by as much."""
    key: jax.Array

    def apply(self, units: jax.Array, layer: int) -> jax.Array:
        """Another choice for every row and every layer."""
        kept = jax.random.bernoulli(jax.random.fold_in(self.key, layer), 1 - self.rate, units.shape)
        return jnp.where(kept, units / (1 - self.rate), 0.0)


def apply_mlp(
    layers: Layers,
    inputs: jax.Array,
    activation: Activation = "relu",
    precision: Precision = "float32",
    dropout: Dropout | None = None,
) -> jax.Array:
    """The activation between the layers, nothing after the last."""
    hidden = apply_hidden(layers[:-1], inputs, activation, precision, dropout)
    return product(hidden, layers[-1]["weight"], precision) + layers[-1]["bias"]


def apply_hidden(
    layers: Layers,
    inputs: jax.Array,
    activation: Activation,
    precision: Precision,
    dropout: Dropout | None = None,
) -> jax.Array:
    """The activation after each of the layers."""
    for index, layer in enumerate(layers):
        inputs = product(inputs, layer["weight"], precision) + layer["bias"]
        if dropout is not None:
            inputs = dropout.apply(inputs, index)
        if "scale" in layer:
            inputs = layer_normalize(inputs, layer["scale"], layer["shift"])
        inputs = ACTIVATIONS[activation](inputs)
    return inputs


def features(*inputs: jax.Array, scale_images: bool = True) -> jax.Array:
    """All inputs as one float32 vector per row; images flattened and scaled to [0, 1]."""
    if any(part.dtype == jnp.uint8 and part.ndim < 3 for part in inputs):
        raise UserError(
            "a network that reads images and numbers apart was not told which is which: give "
            "init_network spec.features, not its shape"
        )
    flat = [
        pixel_values(part, scale_images).reshape(*part.shape[:-3], -1)
        if part.dtype == jnp.uint8
        else part
        for part in inputs
    ]
    return jnp.concatenate(flat, axis=-1) if len(flat) > 1 else flat[0]


def pixel_values(pixels: jax.Array, scale_images: bool = True) -> jax.Array:
    """uint8 pixels as float32: in [0, 1], or as they are."""
    values = pixels.astype(jnp.float32)
    return values * np.float32(1 / 255) if scale_images else values
