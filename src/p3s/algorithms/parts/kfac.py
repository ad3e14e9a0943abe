"""K-FAC for dense layers (Martens & Grosse 2015), as ACKTR uses it (Wu et al. 2017).

The Fisher matrix of a layer's weights is taken for a Kronecker product: with a the layer's inputs
(and a 1 for the bias) and g the slope of a sampled log-likelihood at its outputs,

    F = E[a aᵀ ⊗ g gᵀ]  is taken for  A ⊗ S,   A = E[a aᵀ],  S = E[g gᵀ]

    statistics    A, S <- decay * A, S + (1 - decay) * those of this batch
    direction     A = Q_A diag(e_A) Q_Aᵀ,  S = Q_S diag(e_S) Q_Sᵀ
                  U = Q_A [ (Q_Aᵀ G Q_S) / (e_A e_Sᵀ + damping) ] Q_Sᵀ
    trust         U <- U * min(1, sqrt(clip_kl / sum lr² U · G)),  one factor for all layers
    step          velocity <- momentum * velocity + U
                  weights  <- weights - lr * (1 - momentum) * velocity

The damping is added to the products of eigenvalues, not shared out between the factors. In the
first `cold_iterations` steps U is the plain gradient, while the statistics settle.

A parameter that is added to something, such as a log std, is a layer without inputs: its weight
has no rows, A is 1, and S is the covariance of its slopes.

Differs from baselines in: factors and eigenvectors are new at every step, on time, instead of
every other step in another thread; the first batch sets the statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from p3s.networks import ACTIVATIONS, Activation, Layers
from p3s.types import Params


class Trace(NamedTuple):
    """What went through a layer: inputs (rows, in), slopes of the log-likelihood (rows, out)."""

    inputs: jax.Array
    slopes: jax.Array


class Factors(NamedTuple):
    """A layer's two Fisher factors, (in + 1, in + 1) and (out, out)."""

    inputs: jax.Array
    outputs: jax.Array


class KFACState(NamedTuple):
    """Between two steps."""

    factors: list[Factors]
    velocity: Layers
    num_steps: jax.Array


def trace(
    layers: Layers,
    inputs: jax.Array,
    activation: Activation,
    log_likelihood: Callable[[jax.Array], jax.Array],
) -> list[Trace]:
    """Inputs and slopes of every layer, for a log-likelihood of each row given its outputs."""

    def total(shifts: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        seen, values = [], inputs
        for index, (layer, shift) in enumerate(zip(layers, shifts, strict=True)):
            seen.append(values)
            values = values @ layer["weight"] + layer["bias"] + shift
            if index < len(layers) - 1:
                values = ACTIVATIONS[activation](values)
        return log_likelihood(values).sum(), seen

    # Rows do not touch each other, so the slope of the sum at a row's shift is the row's own.
    nothing = [jnp.zeros((len(inputs), len(layer["bias"])), inputs.dtype) for layer in layers]
    slopes, seen = jax.grad(total, has_aux=True)(nothing)
    return [Trace(*pair) for pair in zip(seen, slopes, strict=True)]


def estimate(layer: Trace, weights: jax.Array) -> Factors:
    """The factors of one batch; weights: of each row, with sum 1."""
    ones = jnp.ones((len(layer.inputs), 1), layer.inputs.dtype)
    inputs = jnp.concatenate([layer.inputs, ones], axis=1)
    return Factors(
        (inputs * weights[:, None]).T @ inputs, (layer.slopes * weights[:, None]).T @ layer.slopes
    )


def precondition(
    factors: Factors, layer: dict[str, jax.Array], damping: float
) -> dict[str, jax.Array]:
    """The direction U for one layer's gradient."""
    gradient = jnp.concatenate([layer["weight"], layer["bias"][None]])
    input_values, input_vectors = jnp.linalg.eigh(factors.inputs)
    output_values, output_vectors = jnp.linalg.eigh(factors.outputs)
    # Rounding can leave an eigenvalue of a covariance a little below zero.
    products = jnp.maximum(input_values, 0.0)[:, None] * jnp.maximum(output_values, 0.0)
    turned = input_vectors.T @ gradient @ output_vectors / (products + damping)
    direction = input_vectors @ turned @ output_vectors.T
    return {"weight": direction[:-1], "bias": direction[-1]}


def trust(
    direction: Params, gradient: Params, learning_rate: jax.Array | float, clip_kl: float
) -> jax.Array:
    """min(1, sqrt(clip_kl / sum lr² U · G))."""
    products = jax.tree.map(lambda ours, theirs: jnp.sum(ours * theirs), direction, gradient)
    moved = learning_rate**2 * sum(jax.tree.leaves(products))
    return jnp.minimum(1.0, jnp.sqrt(clip_kl / jnp.maximum(moved, 1e-30)))


@dataclass(frozen=True)
class KFAC:
    """An optimizer of dense layers."""

    clip_kl: float
    damping: float
    statistics_decay: float
    momentum: float
    cold_iterations: int = 0

    def start(self, layers: Layers) -> KFACState:
        """The state before the first step."""
        factors = [
            Factors(
                jnp.zeros((len(layer["weight"]) + 1,) * 2, jnp.float32),
                jnp.zeros((len(layer["bias"]),) * 2, jnp.float32),
            )
            for layer in layers
        ]
        return KFACState(factors, jax.tree.map(jnp.zeros_like, layers), jnp.int32(0))

    def step(
        self,
        layers: Layers,
        gradient: Layers,
        traces: list[Trace],
        weights: jax.Array,
        state: KFACState,
        learning_rate: jax.Array | float,
    ) -> tuple[Layers, KFACState]:
        """New layers and state; weights: of each row of the traces, with sum 1."""
        batch = [estimate(layer, weights) for layer in traces]
        kept = jnp.where(state.num_steps == 0, 0.0, self.statistics_decay)
        factors = jax.tree.map(
            lambda old, new: kept * old + (1.0 - kept) * new, state.factors, batch
        )
        direction = [
            precondition(factor, layer, self.damping)
            for factor, layer in zip(factors, gradient, strict=True)
        ]
        scale = trust(direction, gradient, learning_rate, self.clip_kl)
        cold = state.num_steps < self.cold_iterations
        velocity = jax.tree.map(
            lambda before, ours, plain: (
                self.momentum * before + jnp.where(cold, plain, scale * ours)
            ),
            state.velocity,
            direction,
            gradient,
        )
        rate = learning_rate * (1.0 - self.momentum)
        moved = jax.tree.map(lambda leaf, speed: leaf - rate * speed, layers, velocity)
        return moved, KFACState(factors, velocity, state.num_steps + 1)
