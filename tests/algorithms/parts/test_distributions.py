"""Divergences and densities: by integration, and by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms.parts import squashed_gaussian as squashed
from p3s.algorithms.parts.categorical import categorical_kl


class TestKL:
    @pytest.mark.parametrize("squash", [False, True])
    def test_gaussian_by_integration(self, squash):
        """The closed form equals the integral, before squashing and after."""
        (mean, std), (far, far_std) = (0.3, 0.5), (-0.4, 0.8)
        u = np.linspace(-8, 8, 400_001)
        densities = [
            np.exp(-0.5 * ((u - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
            for m, s in ((mean, std), (far, far_std))
        ]
        variable = u
        if squash:
            kept = np.abs(u) < 6
            variable, slope = np.tanh(u[kept]), 1 - np.tanh(u[kept]) ** 2
            densities = [density[kept] / slope for density in densities]
        ours, other = densities
        integral = np.trapezoid(ours * np.log(np.maximum(ours, 1e-300) / other), variable)
        closed = squashed.gaussian_kl(
            squashed.Gaussian(jnp.array([mean]), jnp.log(jnp.array([std]))),
            squashed.Gaussian(jnp.array([far]), jnp.log(jnp.array([far_std]))),
        )
        assert float(closed) == pytest.approx(integral, rel=1e-4)

    def test_density_integrates_to_one(self):
        u = np.linspace(-6, 6, 20_001)
        distribution = squashed.Gaussian(jnp.full((20_001, 1), 0.3), jnp.full((20_001, 1), -0.5))
        noise = ((u - 0.3) / np.exp(-0.5))[:, None].astype(np.float32)
        action, log_density = squashed.squashed_sample(distribution, noise)
        total = np.trapezoid(np.exp(np.float64(log_density)), np.float64(action[:, 0]))
        assert total == pytest.approx(1, abs=2e-3)

    def test_categorical_by_hand(self):
        ours, other = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
        expected = float(np.sum(ours * np.log(ours / other)))
        shifted = categorical_kl(jnp.log(ours) + 3.0, jnp.log(other) - 2.0)
        assert float(shifted) == pytest.approx(expected, rel=1e-5)


def test_the_distance_of_noiseless_actions():
    """½ · ((tanh 1 - tanh 0)² + (tanh 0 - tanh(-1))²) / 2, whatever the stds are."""
    ours = squashed.Gaussian(jnp.array([[1.0, 0.0]]), jnp.array([[0.3, -2.0]]))
    other = squashed.Gaussian(jnp.array([[0.0, -1.0]]), jnp.array([[-1.0, 0.0]]))
    expected = 0.5 * np.tanh(1.0) ** 2
    np.testing.assert_allclose(squashed.noiseless_distance(ours, other), [expected], rtol=1e-6)
    np.testing.assert_allclose(squashed.noiseless_distance(ours, ours), [0.0])
