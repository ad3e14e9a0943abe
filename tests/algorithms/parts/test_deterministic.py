"""Exploration of deterministic policies: the Ornstein-Uhlenbeck process without a state."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.learning.learners import act
from tests.helpers import record, resume, run
from tests.helpers_losses import linear

KEY = jax.random.key(7)
SIGMA = 0.01
"""Small, so that nothing is clipped."""


def noise_at(steps, num_learners: int = 2, **fields) -> np.ndarray:
    """Exploring actions of policies that would do nothing, over σ: (steps, learners, actions)."""
    made = ALGORITHMS["ddpg"](exploration_noise=SIGMA, **fields)
    policies = jax.tree.map(
        lambda leaf: jnp.repeat(leaf[None], num_learners, axis=0),
        linear(np.zeros((1, 2)), np.zeros(2)),
    )
    observations = jnp.zeros((num_learners, 1))
    indices = jnp.arange(num_learners)
    draw = partial(act, made, policies, observations, KEY, indices, explore=True)
    steps = jnp.asarray(steps, jnp.int32)
    return np.asarray(jax.jit(lambda each: jax.lax.map(draw, each))(steps)) / SIGMA


process_at = partial(noise_at, exploration_noise_kind="ornstein_uhlenbeck")


def test_is_the_recursion_driven_by_the_independent_noise():
    """x_t = (1 - theta) x_{t-1} + noise_t, from so far back that its start is forgotten."""
    theta, first, last = 0.15, 3, 420
    x = np.zeros((2, 2))
    for independent in noise_at(range(first, last + 1)):
        x = (1 - theta) * x + independent
    (found,) = process_at([last], exploration_noise_reversion=theta)
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)


def test_full_reversion_is_independent_noise():
    steps = [1, 2, 900]
    process = process_at(steps, exploration_noise_reversion=1.0)
    np.testing.assert_allclose(process, noise_at(steps), rtol=1e-6)


@pytest.mark.parametrize("theta", [0.15, pytest.param(0.5, marks=pytest.mark.slow)])
def test_variance_and_autocorrelation(theta):
    """In the long run: variance 1 / (1 - (1 - theta)²), correlation (1 - theta)^lag."""
    process = process_at(range(1, 10_001), num_learners=4, exploration_noise_reversion=theta)
    rows = process.reshape(len(process), -1).astype(np.float64)
    variance = 1 / (1 - (1 - theta) ** 2)
    assert rows.var() == pytest.approx(variance, rel=0.05)
    assert abs(rows.mean()) < 0.1 * np.sqrt(variance)
    for lag in (1, 2, 5, 10):
        correlation = np.mean(rows[lag:] * rows[:-lag]) / rows.var()
        assert correlation == pytest.approx((1 - theta) ** lag, abs=0.04)


def test_a_step_does_not_depend_on_what_was_computed_before():
    together = process_at([1, 2, 3, 500, 501])
    for index, step in enumerate([1, 2, 3, 500, 501]):
        assert np.array_equal(process_at([step])[0], together[index])
    assert np.array_equal(process_at([501, 2])[::-1], together[[1, 4]])


def test_learners_have_processes_of_their_own_whatever_the_population():
    few, many = process_at([40], num_learners=2), process_at([40], num_learners=5)
    np.testing.assert_allclose(few[0], many[0, :2], rtol=1e-5)
    assert len(np.unique(many)) == many.size


def test_a_policy_asked_alone_draws_from_where_the_process_settles():
    made = ALGORITHMS["td3"](
        exploration_noise=SIGMA,
        exploration_noise_kind="ornstein_uhlenbeck",
        exploration_noise_reversion=0.5,
    )
    policy = linear(np.zeros((1, 1)), np.zeros(1))
    actions = made.act(policy, jnp.zeros((20_000, 1)), KEY, explore=True)
    assert float(actions.std()) == pytest.approx(SIGMA / np.sqrt(0.75), rel=0.03)


@pytest.mark.slow
def test_a_run_resumes_to_the_bit(tmp_path):
    fields = {"scheme": "sharing", "exploration_noise_kind": "ornstein_uhlenbeck"}
    run(tmp_path / "whole", **fields)
    run(tmp_path / "parts", until=330, **fields)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(tmp_path / "whole")
    run(tmp_path / "independent", scheme="sharing")
    assert record(tmp_path / "independent")["metrics"] != record(tmp_path / "whole")["metrics"]
