"""A network with running statistics: batch renormalization, as in CrossQ (Bhatt et al. 2024).

    inputs -> norm, then for every hidden layer: dense -> relu -> norm, then a dense layer

In training mode a norm uses the minibatch's own mean and variance; after `WARM_UP` passes it
corrects them towards the running ones (Ioffe 2017):

    r = clip(σ_B / σ_run, 1/3, 3),  d = clip((μ_B - μ_run) / σ_run, ±5)        no gradient
    mean = μ_B - d √var_B / r,      variance = var_B / r²

In evaluation mode it uses the running ones. These and the count of passes are carried.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.networks import Network, features, init_mlp
from p3s.plugins import register
from p3s.trees import Carried

WARM_UP = 2
"""Passes with plain batch normalization; CrossQ has 100,000."""
EPSILON = 1e-3
MOMENTUM = 0.99
LARGEST_R, LARGEST_D = 3.0, 5.0


def init_norm(size: int):
    """Scale and shift, and the running statistics."""
    return {
        "scale": jnp.ones(size, jnp.float32),
        "shift": jnp.zeros(size, jnp.float32),
        "running": Carried(
            {
                "mean": jnp.zeros(size, jnp.float32),
                "variance": jnp.ones(size, jnp.float32),
                "passes": jnp.int32(0),
            }
        ),
    }


def normalize(norm, inputs: jax.Array, train: bool):
    """Normalized inputs, (rows, size), and the norm with its statistics after the pass."""
    running = norm["running"].value
    mean, variance = running["mean"], running["variance"]
    if train:
        own_mean, own_variance = inputs.mean(axis=0), inputs.var(axis=0)
        r, d = corrections(own_mean, own_variance, running)
        mean = own_mean - d * jnp.sqrt(own_variance) / r
        variance = own_variance / r**2
        running = {
            "mean": MOMENTUM * running["mean"] + (1 - MOMENTUM) * own_mean,
            "variance": MOMENTUM * running["variance"] + (1 - MOMENTUM) * own_variance,
            "passes": running["passes"] + 1,
        }
    outputs = (inputs - mean) * jax.lax.rsqrt(variance + EPSILON)
    return outputs * norm["scale"] + norm["shift"], {**norm, "running": Carried(running)}


def corrections(mean: jax.Array, variance: jax.Array, running) -> tuple[jax.Array, jax.Array]:
    """r and d; 1 and 0 for the first passes."""
    deviation = jnp.sqrt(variance + EPSILON)
    running_deviation = jnp.sqrt(running["variance"] + EPSILON)
    r = jnp.clip(deviation / running_deviation, 1 / LARGEST_R, LARGEST_R)
    d = jnp.clip((mean - running["mean"]) / running_deviation, -LARGEST_D, LARGEST_D)
    warm = running["passes"] >= WARM_UP
    return jax.lax.stop_gradient((jnp.where(warm, r, 1.0), jnp.where(warm, d, 0.0)))


@register
@dataclass(frozen=True, kw_only=True)
class BatchRenorm(Network):
    """Dense layers with batch renormalization before the first and after every activation."""

    name: ClassVar[str] = "test_batch_renorm"
    has_dropout: ClassVar[bool] = True

    def init(self, key, shapes, output_size):
        sizes = [prod(shape) for shape in shapes]
        layers = init_mlp(key, sizes, self.hidden_sizes, output_size, self.initialization)
        norms = [init_norm(size) for size in (sum(sizes), *self.hidden_sizes)]
        return {"layers": layers, "norms": norms}

    def apply(self, params, *inputs, train, dropout=None):
        *hidden, last = params["layers"]
        stream, first = normalize(params["norms"][0], features(*inputs), train)
        norms = [first]
        for index, (layer, norm) in enumerate(zip(hidden, params["norms"][1:], strict=True)):
            stream = stream @ layer["weight"] + layer["bias"]
            stream = jax.nn.relu(stream if dropout is None else dropout.apply(stream, index))
            stream, after = normalize(norm, stream, train)
            norms.append(after)
        outputs = stream @ last["weight"] + last["bias"]
        return outputs, {**params, "norms": norms}
