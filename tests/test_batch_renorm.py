"""Batch renormalization, against numpy worked from its equations."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.networks import apply_network, init_model, part, train_network
from p3s.networks.batch_renorm import init_norm, normalize
from p3s.trees import Carried, trained
from tests.networks_for_tests import BatchRenorm

ROWS = np.random.default_rng(0).normal(2.0, 3.0, (6, 3)).astype(np.float32)


def norm_with(mean, variance, passes: int):
    """A norm with these running statistics, scale 2 and shift 0.5."""
    running = {
        "mean": jnp.array(mean, jnp.float32),
        "variance": jnp.array(variance, jnp.float32),
        "passes": jnp.int32(passes),
    }
    size = len(mean)
    return {"scale": jnp.full(size, 2.0), "shift": jnp.full(size, 0.5), "running": Carried(running)}


class TestByHand:
    """One column of rows 0 and 4: mean 2, variance 4."""

    rows = jnp.array([[0.0], [4.0]])

    def test_first_passes_are_plain_batch_normalization(self):
        outputs, after = normalize(norm_with([9.0], [100.0], 1), self.rows, True, 2)
        size = 2 / np.sqrt(4.001)
        np.testing.assert_allclose(outputs[:, 0], [0.5 - 2 * size, 0.5 + 2 * size], rtol=1e-5)
        running = after["running"].value
        assert float(running["mean"][0]) == pytest.approx(0.99 * 9 + 0.01 * 2)
        assert float(running["variance"][0]) == pytest.approx(0.99 * 100 + 0.01 * 4)
        assert (int(running["passes"]), running["passes"].dtype) == (2, jnp.int32)

    def test_then_running_statistics_correct_the_batch(self):
        """Running mean 1 and variance 1: r = √4.001 / √1.001, d = 1 / √1.001, neither clipped."""
        outputs, after = normalize(norm_with([1.0], [1.0], 2), self.rows, True, 2)
        r, d = np.sqrt(4.001 / 1.001), 1 / np.sqrt(1.001)
        mean, variance = 2 - d * 2 / r, 4 / r**2
        expected = 0.5 + 2 * (np.array([0.0, 4.0]) - mean) / np.sqrt(variance + 1e-3)
        np.testing.assert_allclose(outputs[:, 0], expected, rtol=1e-5)
        # Within what ε does: as with the running statistics.
        np.testing.assert_allclose(outputs[:, 0], [-1.5, 6.5], rtol=2e-3)
        assert int(after["running"].value["passes"]) == 3

    @pytest.mark.parametrize(
        ("mean", "variance", "r", "d"), [(2.0, 0.04, 3, 0), (2.0, 400.0, 1 / 3, 0), (-98, 4, 1, 5)]
    )
    def test_corrections_are_clipped(self, mean, variance, r, d):
        outputs, _ = normalize(norm_with([mean], [variance], 2), self.rows, True, 2)
        center, square = 2 - d * 2 / r, 4 / r**2
        expected = 0.5 + 2 * (np.array([0.0, 4.0]) - center) / np.sqrt(square + 1e-3)
        np.testing.assert_allclose(outputs[:, 0], expected, rtol=1e-4)

    def test_evaluation_uses_the_running_statistics(self):
        norm = norm_with([1.0], [4.0], 7)
        outputs, after = normalize(norm, self.rows, False, 2)
        size = 2 / np.sqrt(4.001)
        np.testing.assert_allclose(outputs[:, 0], [0.5 - size, 0.5 + 3 * size], rtol=1e-5)
        assert jax.tree.all(jax.tree.map(np.array_equal, after, norm))


def numpy_pass(params, rows, running, passes):
    """One training pass of a network with one hidden layer, in float64; updates `running`."""
    outputs = np.float64(rows)
    layers = [{k: np.float64(v) for k, v in layer.items()} for layer in params["layers"]]
    for index in range(2):
        if index:
            outputs = np.maximum(outputs @ layers[0]["weight"] + layers[0]["bias"], 0)
        mean, variance = outputs.mean(axis=0), outputs.var(axis=0)
        old_mean, old_variance = running[index]
        r, d = 1.0, 0.0
        if passes >= 2:
            spread = np.sqrt(old_variance + 1e-3)
            r = np.clip(np.sqrt(variance + 1e-3) / spread, 1 / 3, 3)
            d = np.clip((mean - old_mean) / spread, -5, 5)
        running[index] = 0.99 * old_mean + 0.01 * mean, 0.99 * old_variance + 0.01 * variance
        center, square = mean - d * np.sqrt(variance) / r, variance / r**2
        outputs = (outputs - center) / np.sqrt(square + 1e-3)
    return outputs @ layers[1]["weight"] + layers[1]["bias"]


class TestNetwork:
    network = BatchRenorm(
        hidden_sizes=(5,), activation="relu", layer_norm=False, initialization="fan_in"
    )

    def model(self):
        return init_model(self.network, jax.random.key(0), [(2,), (1,)], 2)

    def test_four_training_passes(self):
        model = self.model()
        running = [(np.zeros(3), np.ones(3)), (np.zeros(5), np.ones(5))]
        for passes in range(4):
            rows = ROWS * (1 + passes)
            outputs, model = train_network(model, rows[:, :2], rows[:, 2:])
            expected = numpy_pass(model.params, rows, running, passes)
            np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
        for norm, (mean, variance) in zip(model.params["norms"], running, strict=True):
            found = norm["running"].value
            np.testing.assert_allclose(found["mean"], mean, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found["variance"], variance, rtol=1e-5)
            assert int(found["passes"]) == 4

    def test_evaluation_looks_at_each_row_alone(self):
        _, model = train_network(self.model(), ROWS[:, :2], ROWS[:, 2:])
        together = apply_network(model, ROWS[:, :2], ROWS[:, 2:])
        alone = [apply_network(model, row[:2], row[2:]) for row in ROWS]
        np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5, atol=1e-6)

    def test_corrections_have_no_gradient(self):
        """The slope of a training pass, r and d held fixed, by central differences."""
        norm = norm_with([0.5, 0.5, 0.5], [2.0, 9.0, 400.0], 2)
        weight = np.random.default_rng(1).normal(size=ROWS.shape)
        slopes = jax.grad(lambda rows: jnp.sum(weight * normalize(norm, rows, True, 2)[0]))(ROWS)
        mean, variance = ROWS.mean(axis=0, dtype=float), ROWS.var(axis=0, dtype=float)
        spread = np.sqrt(np.array([2.0, 9.0, 400.0]) + 1e-3)
        r = np.clip(np.sqrt(variance + 1e-3) / spread, 1 / 3, 3)
        d = np.clip((mean - 0.5) / spread, -5, 5)

        def held(rows):
            mean, variance = rows.mean(axis=0), rows.var(axis=0)
            center = mean - d * np.sqrt(variance) / r
            outputs = 2 * (rows - center) / np.sqrt(variance / r**2 + 1e-3) + 0.5
            return np.sum(weight * outputs)

        for index in np.ndindex(ROWS.shape):
            step = np.zeros(ROWS.shape)
            step[index] = 1e-5
            slope = (held(ROWS + step) - held(ROWS - step)) / 2e-5
            assert float(slopes[index]) == pytest.approx(slope, rel=1e-3, abs=1e-4)

    @pytest.mark.parametrize("passes", [0, 2])
    def test_constant_inputs_have_finite_slopes(self, passes):
        """A unit that is always 0, or an observation that never changes."""
        norm = norm_with([0.5], [2.0], passes)
        slopes = jax.grad(lambda rows: jnp.sum(normalize(norm, rows, True, 2)[0] ** 2))
        assert np.isfinite(slopes(jnp.full((4, 1), 3.0))).all()

    def test_dense_layers_that_do_the_same(self):
        """Norms in evaluation mode are folded into the layers after them."""
        network = replace(self.network, layer_norm=True, activation="tanh")
        model = init_model(network, jax.random.key(0), [(2,), (1,)], 2)
        for scale in (1.0, 2.0, 3.0):
            _, model = train_network(model, scale * ROWS[:, :2], scale + ROWS[:, 2:])
        found = apply_network(part(model), ROWS)
        expected = apply_network(model, ROWS[:, :2], ROWS[:, 2:])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_what_is_trained(self):
        params = self.model().params
        names = {jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(
            trained(params)
        )}  # fmt: skip
        assert not any("running" in name for name in names)
        assert len(names) == 4 + 4  # two dense layers, two norms
        assert init_norm(3)["running"].value["passes"].dtype == jnp.int32
