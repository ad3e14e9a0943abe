"""Multi-layer perceptrons as pure functions over a list of {"weight", "bias"} layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.types import Params

Initialization = Literal["fan_in", "xavier"]
Layers = list[dict[str, jax.Array]]


def init_mlp(
    key: jax.Array,
    input_sizes: Sequence[int],
    hidden_sizes: Sequence[int],
    output_size: int,
    initialization: Initialization,
) -> Layers:
    """Random layers for the concatenation of inputs of the given sizes.

    fan_in: weights and biases U(±1/sqrt(fan_in)), as TD3's code has them.
    xavier: weights U(±sqrt(6/(fan_in + fan_out))), zero biases; each input of the first layer
    counts its own fan-in, as if it had its own matrix (the authors' P3S code).
    """
    sizes = [sum(input_sizes), *hidden_sizes, output_size]
    layers = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight_key, bias_key = jax.random.split(jax.random.fold_in(key, index))
        if initialization == "xavier":
            parts = input_sizes if index == 0 else [fan_in]
            bounds = np.repeat([np.sqrt(6 / (part + fan_out)) for part in parts], parts)
            bias_bound = 0.0
        else:
            bounds = np.full(fan_in, 1 / np.sqrt(fan_in))
            bias_bound = 1 / np.sqrt(fan_in)
        weight = jax.random.uniform(weight_key, (fan_in, fan_out), jnp.float32, -1, 1)
        bias = jax.random.uniform(bias_key, (fan_out,), jnp.float32, -1, 1)
        layers.append(
            {
                "weight": weight * bounds[:, None].astype(np.float32),
                "bias": bias * np.float32(bias_bound),
            }
        )
    return layers


def follow(targets: Params, online: Params, rate: float) -> Params:
    """Move target parameters a little towards the online ones: (1 - rate) target + rate online."""
    return jax.tree.map(lambda target, leaf: target + rate * (leaf - target), targets, online)


def follow_every(
    targets: Params, online: Params, rate: float, count: jax.Array, period: int
) -> Params:
    """`follow` whenever `count` is a multiple of `period`; a rate of 1 copies to the bit."""
    due = count % period == 0
    return jax.tree.map(
        lambda target, leaf: jnp.where(due, (1.0 - rate) * target + rate * leaf, target),
        targets,
        online,
    )


def apply_mlp(layers: Layers, inputs: jax.Array) -> jax.Array:
    """ReLU between the layers, nothing after the last."""
    for layer in layers[:-1]:
        inputs = jax.nn.relu(inputs @ layer["weight"] + layer["bias"])
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]
