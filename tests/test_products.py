"""Products in half width: what is rounded, and what is not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.learning.devices import library_for
from p3s.networks.products import half_width, product
from tests.helpers import trained


def rounded(values) -> np.ndarray:
    return np.asarray(jnp.asarray(values).astype(jnp.bfloat16).astype(jnp.float32), np.float64)


RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(3, 7, 40)).astype(np.float32)
WEIGHT = RNG.normal(size=(40, 5)).astype(np.float32)
COTANGENT = RNG.normal(size=(3, 7, 5)).astype(np.float32)


def test_factors_are_rounded_and_sums_are_not():
    result = product(INPUTS, WEIGHT, "bfloat16")
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, rounded(INPUTS) @ rounded(WEIGHT), rtol=2e-6, atol=2e-6)
    assert not np.allclose(result, INPUTS @ WEIGHT, rtol=1e-4)


def test_gradients_are_products_in_full_width():
    _, pull = jax.vjp(lambda x, w: product(x, w, "bfloat16"), INPUTS, WEIGHT)
    by_inputs, by_weight = pull(jnp.asarray(COTANGENT))
    assert by_inputs.dtype == by_weight.dtype == jnp.float32
    np.testing.assert_allclose(by_inputs, COTANGENT @ WEIGHT.T, rtol=2e-6, atol=1e-5)
    expected = np.einsum("abi,abo->io", INPUTS, COTANGENT)
    np.testing.assert_allclose(by_weight, expected, rtol=2e-6, atol=1e-5)


def test_rounding():
    """To the nearest, ties away from zero; infinity and NaN stay what they are."""
    step = 2.0**-7  # between bfloat16 numbers at 1
    given = [1.0, 1 + step / 4, 1 + step / 2, 1 + 3 * step / 4, -1 - step / 2, 0.0, -0.0]
    expected = [1.0, 1.0, 1 + step, 1 + step, -1 - step, 0.0, -0.0]
    found = np.asarray(half_width(jnp.asarray(given, jnp.float32)).astype(jnp.float32))
    np.testing.assert_array_equal(found, np.asarray(expected, np.float32))
    special = jnp.asarray([jnp.inf, -jnp.inf, jnp.nan], jnp.float32)
    np.testing.assert_array_equal(half_width(special).astype(jnp.float32), special)


def test_the_library_depends_on_the_fields_alone():
    def library(**fields) -> str:
        return library_for(ALGORITHMS["td3"](**fields))

    assert library() == library(hidden_sizes=(1024, 256)) == "eigen"
    assert library(hidden_sizes=(1024, 512)) == library(precision="bfloat16") == "ynnpack"
    assert library_for(ALGORITHMS["ppo"]()) == "eigen"


def test_a_stack_of_networks():
    weights = jnp.stack([WEIGHT, 2 * WEIGHT])
    both = jax.vmap(lambda w: product(INPUTS, w, "bfloat16"))(weights)
    np.testing.assert_allclose(both[1], 2 * product(INPUTS, WEIGHT, "bfloat16"), rtol=1e-6)


@pytest.mark.parametrize("algorithm", ["td3", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_run_in_half_width_keeps_float32_state_and_stays_close(algorithm):
    whole, half = (
        trained(300, algorithm=algorithm, precision=precision, evaluation_period=0)
        for precision in ("float32", "bfloat16")
    )
    leaves = jax.tree.leaves(half.crew.updater.state.learners)
    assert {str(leaf.dtype) for leaf in leaves} <= {"float32", "int32"}
    ours, theirs = (
        jax.tree.leaves(run.crew.updater.state.learners.policy) for run in (half, whole)
    )
    apart = [float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)]
    assert 0 < max(apart) < 0.2
    for run in (whole, half):
        run.close()
