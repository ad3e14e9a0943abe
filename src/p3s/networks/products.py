"""Matrix products in full or in half width.

float32    inputs @ weight
bfloat16   both factors rounded to bfloat16, their products summed in float32; the products of
           gradients, weights, optimizers and targets stay float32

Gradients multiply by transposed factors, which the CPU's library widens again before it multiplies.
More than half of an update's products are in its forward passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

Precision = Literal["float32", "bfloat16"]


def product(inputs: jax.Array, weight: jax.Array, precision: Precision) -> jax.Array:
    """inputs @ weight, (..., in) by (in, out)."""
    if precision == "float32":
        return inputs @ weight
    return _half_width_product(inputs, weight)


@jax.custom_vjp
def _half_width_product(inputs: jax.Array, weight: jax.Array) -> jax.Array:
    return _forward(inputs, weight)[0]


def _sum_in_float32(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, preferred_element_type=jnp.float32)


def half_width(values: jax.Array) -> jax.Array:
    """float32 rounded to the nearest bfloat16, which is its upper half.

    Ties are rounded away from zero; the compiler's own conversion, to even, takes longer.
    """
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32) + jnp.uint32(0x8000)
    upper = (bits >> 16).astype(jnp.uint16)
    return jax.lax.bitcast_convert_type(upper, jnp.bfloat16)


def _forward(inputs: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _sum_in_float32(half_width(inputs), half_width(weight)), (inputs, weight)


def _backward(
    factors: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    inputs, weight = factors
    rows, columns = (part.reshape(-1, part.shape[-1]) for part in (inputs, gradient))
    return gradient @ weight.T, rows.T @ columns


_half_width_product.defvjp(_forward, _backward)


def has_half_width_products() -> bool:
    """Whether the hardware multiplies bfloat16; a processor that hides its features has not."""
    if jax.default_backend() != "cpu":
        return True
    features = Path("/proc/cpuinfo")
    if not features.is_file():
        return False
    words = set(features.read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
