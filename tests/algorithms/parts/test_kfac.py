"""K-FAC: against the exact Fisher inverse where its assumption holds, and against kfac-jax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms.on_policy import init_dense
from p3s.algorithms.parts import kfac
from p3s.algorithms.parts.kfac import KFAC, Factors, Trace
from p3s.networks import apply_mlp

ROWS = 40
WEIGHTS = np.full(ROWS, 1 / ROWS, np.float32)


def same(ours, theirs, tolerance=1e-4) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), ours, theirs
    )


def test_exact_where_inputs_and_slopes_are_independent():
    """All pairs of 8 inputs and 5 slopes: E[aaᵀ ⊗ ggᵀ] is E[aaᵀ] ⊗ E[ggᵀ], so K-FAC is exact."""
    draw = np.random.default_rng(0)
    inputs, slopes = draw.normal(size=(8, 3)), draw.normal(size=(5, 2))
    gradient = draw.normal(size=(4, 2))
    fisher = np.zeros((8, 8))
    for a in np.concatenate([inputs, np.ones((8, 1))], axis=1):
        for g in slopes:
            slope = np.outer(a, g).reshape(-1)
            fisher += np.outer(slope, slope) / 40
    exact = np.linalg.solve(fisher + 0.1 * np.eye(8), gradient.reshape(-1)).reshape(4, 2)
    traced = Trace(np.repeat(inputs, 5, axis=0), np.tile(slopes, (8, 1)))
    factors = kfac.estimate(jax.tree.map(jnp.float32, traced), WEIGHTS)
    layer = {"weight": jnp.float32(gradient[:3]), "bias": jnp.float32(gradient[3])}
    direction = kfac.precondition(factors, layer, 0.1)
    same(direction, {"weight": exact[:3], "bias": exact[3]})


def test_natural_gradient_of_a_linear_gaussian_is_least_squares():
    """F = E[aaᵀ] there: without damping one full step lands on the solution."""
    draw = np.random.default_rng(1)
    inputs, target = draw.normal(size=(ROWS, 3)), draw.normal(size=(ROWS, 1))
    design = np.concatenate([inputs, np.ones((ROWS, 1))], axis=1)
    solution = np.linalg.lstsq(design, target, rcond=None)[0]
    layers = init_dense(jax.random.key(0), [3, 1], [1.0], "tanh", True).params
    x, y = jnp.float32(inputs), jnp.float32(target)
    gradient = jax.grad(lambda net: 0.5 * jnp.mean((apply_mlp(net, x, "tanh") - y) ** 2))(layers)
    optimizer = KFAC(clip_kl=1e9, damping=0.0, statistics_decay=0.9, momentum=0.0)
    # The slopes of a log-likelihood N(y, 1) are standard normal: ±1 has that covariance.
    signs = jnp.where(jnp.arange(ROWS)[:, None] % 2 == 0, 1.0, -1.0)
    traces = kfac.trace(layers, x, "tanh", lambda outputs: outputs * signs)
    moved, _ = optimizer.step(layers, gradient, traces, WEIGHTS, optimizer.start(layers), 1.0)
    same(moved, [{"weight": solution[:3], "bias": solution[3]}])


def test_traces_are_inputs_and_slopes_of_each_row():
    layers = init_dense(jax.random.key(0), [3, 5, 2], [1.0, 1.0], "tanh", True).params
    inputs = jax.random.normal(jax.random.key(1), (ROWS, 3))

    def log_likelihood(outputs):
        return jnp.sin(outputs).sum(axis=-1)

    traces = kfac.trace(layers, inputs, "tanh", log_likelihood)
    gradients = jax.vmap(
        jax.grad(lambda net, row: log_likelihood(apply_mlp(net, row, "tanh"))), (None, 0)
    )(layers, inputs)
    for traced, gradient in zip(traces, gradients, strict=True):
        same(jnp.einsum("ri,ro->rio", *traced), gradient["weight"])
        same(traced.slopes, gradient["bias"])


def test_rows_of_weight_zero_do_not_count():
    draw = np.random.default_rng(2)
    traced = Trace(*(draw.normal(size=(6, 2)).astype(np.float32) for _ in range(2)))
    weights = np.array([0.25] * 4 + [0.0] * 2, np.float32)
    some = kfac.estimate(Trace(*(part[:4] for part in traced)), weights[:4])
    same(kfac.estimate(traced, weights), some)


def test_steps_by_hand():
    """One number without inputs, S = 4: decay, trust, momentum and cold steps."""

    def layer(value):
        return [{"weight": jnp.zeros((0, 1)), "bias": jnp.array([value], jnp.float32)}]

    optimizer = KFAC(
        clip_kl=0.25, damping=1.0, statistics_decay=0.75, momentum=0.5, cold_iterations=1
    )
    state = optimizer.start(layer(0.0))

    def step(state, slope):
        traces = [Trace(jnp.zeros((1, 0)), jnp.array([[slope]], jnp.float32))]
        return optimizer.step(layer(0.0), layer(10.0), traces, np.ones(1, np.float32), state, 0.5)

    moved, state = step(state, 2.0)
    assert moved[0]["bias"].tolist() == [-2.5]  # cold: 0.5 * (1 - 0.5) * 10
    same(state.factors, [Factors(jnp.ones((1, 1)), jnp.full((1, 1), 4.0))])
    moved, state = step(state, 4.0)
    # S = 0.75 * 4 + 0.25 * 16 = 7, U = 10 / (7 + 1) = 1.25, lr² U G = 3.125, so U * sqrt(0.08);
    # velocity 0.5 * 10 + 0.35355.
    assert state.factors[0].outputs.tolist() == [[7.0]]
    assert float(state.velocity[0]["bias"][0]) == pytest.approx(5 + 1.25 * np.sqrt(0.08))
    assert float(moved[0]["bias"][0]) == pytest.approx(-0.25 * (5 + 1.25 * np.sqrt(0.08)))


@pytest.mark.filterwarnings("ignore")
def test_against_kfac_jax():
    oracle = pytest.importorskip("kfac_jax", reason="kfac-jax, the oracle, is not installed")
    from kfac_jax._src import tag_graph_matcher

    def evaluate(equation, values):
        # jax >= 0.9.2 gives a dictionary here, which kfac-jax 0.0.8 does not expect.
        found = equation.primitive.get_bind_params(equation.params)
        functions, params = found if isinstance(found, tuple) else ((), found)
        output = equation.primitive.bind(*functions, *values, **params)
        return output if isinstance(output, list) else [output]

    tag_graph_matcher.eval_jaxpr_eqn = evaluate
    layers = init_dense(jax.random.key(0), [3, 5, 4, 1], [1.0] * 3, "tanh", True).params
    batch = tuple(jax.random.normal(jax.random.key(k), (ROWS, n)) for k, n in ((1, 3), (2, 1)))

    def loss(net, batch):
        outputs = apply_mlp(net, batch[0], "tanh")
        oracle.register_normal_predictive_distribution(outputs, batch[1], variance=1.0)
        return 0.5 * jnp.mean((outputs - batch[1]) ** 2)

    key = jax.random.key(3)
    estimator = oracle.BlockDiagonalCurvature(loss, params_index=0)
    state = estimator.init(
        key, (layers, batch), exact_powers_to_cache=None, approx_powers_to_cache=None,
        cache_eigenvalues=False,
    )  # fmt: skip
    state = estimator.update_curvature_matrix_estimate(
        state, ema_old=0.0, ema_new=1.0, identity_weight=0.0, batch_size=ROWS, rng=key,
        func_args=(layers, batch), estimation_mode="fisher_exact",
    )  # fmt: skip
    gradient = jax.grad(loss)(layers, batch)
    expected = estimator.multiply_inverse(
        state, gradient, identity_weight=0.1, exact_power=True, use_cached=False,
        pmap_axis_name=None,
    )  # fmt: skip
    # With one output of variance 1 the slope of the output itself gives the exact Fisher.
    traces = kfac.trace(layers, batch[0], "tanh", lambda outputs: outputs)
    ours = [
        kfac.precondition(kfac.estimate(traced, WEIGHTS), slopes, 0.1)
        for traced, slopes in zip(traces, gradient, strict=True)
    ]
    same(ours, expected, tolerance=1e-5)
