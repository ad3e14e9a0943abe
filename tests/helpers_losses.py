"""Batches, and losses in float64 numpy to compare the compiled ones with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.networks import MLP, Model
from p3s.testing.programs import SPECS, random_batch
from p3s.types import Transition

__all__ = ["SPECS", "random_batch"]  # for the tests that take everything else from here


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def hand_worked() -> tuple[Transition, np.ndarray]:
    """Four steps: one goes on, one terminates, one is truncated, one is where the rollout ends."""
    nothing = np.zeros((4, 1), np.float32)
    steps = Transition(nothing, nothing, floats(1, 2, 3, 4), floats(1, 0, 1, 1), nothing)
    return steps, floats(0, 1, 1, 0)


def linear(weight, bias, *sizes: int) -> Model:
    """A network of one matrix, for inputs of these sizes; by default, for one input."""
    layers = [{"weight": jnp.array(weight, jnp.float32), "bias": jnp.array(bias, jnp.float32)}]
    network = MLP(hidden_sizes=(), activation="relu", layer_norm=False, initialization="fan_in")
    return Model(layers, network, tuple((size,) for size in sizes or (len(weight),)))


def numpy_tanh_mlp(model, inputs):
    layers = model.params
    for index, layer in enumerate(layers):
        inputs = inputs @ layer["weight"] + layer["bias"]
        if index < len(layers) - 1:
            inputs = np.tanh(inputs)
    return inputs


def numpy_mlp(model, inputs):
    layers = model.params
    for index, layer in enumerate(layers):
        inputs = inputs @ np.asarray(layer["weight"], np.float64) + np.asarray(layer["bias"])
        if index < len(layers) - 1:
            inputs = np.maximum(inputs, 0)
    return inputs


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def check_loss(loss, numpy_loss, params) -> None:
    value, gradient = jax.value_and_grad(loss)(params)
    exact = jax.tree.map(lambda leaf: np.array(leaf, np.float64), params)
    assert float(value) == pytest.approx(numpy_loss(exact), rel=1e-5, abs=1e-6)
    for leaf, slopes in zip(jax.tree.leaves(exact), jax.tree.leaves(gradient), strict=True):
        for index in np.ndindex(leaf.shape):
            kept, ends = leaf[index], []
            for step in (1e-5, -1e-5):
                leaf[index] = kept + step
                ends.append(numpy_loss(exact))
            leaf[index] = kept
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(slopes[index]) == pytest.approx(slope, rel=1e-3, abs=5e-5)
