"""TQC: truncation and quantile Huber loss by hand; target and policy loss by float64 numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import TQC
from p3s.algorithms.tqc import mean_quantile, quantile_huber, quantiles_of, truncated
from p3s.config.run import resolve
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers import leaves, problem_of
from tests.helpers_losses import numpy_mlp, random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
SMALL = {"hidden_sizes": (4,), "num_quantiles": 3, "num_dropped": 1}
KEY = jax.random.key(5)


class TestByHand:
    def test_the_largest_of_the_pool_are_left_out(self):
        """Two networks with 1, 5, 9 and 2, 3, 4: pooled and sorted 1 2 3 4 5 9."""
        quantiles = jnp.array([[[1.0, 5.0, 9.0]], [[2.0, 3.0, 4.0]]])
        assert truncated(quantiles, 1).tolist() == [[1, 2, 3, 4]]
        assert truncated(quantiles, 2).tolist() == [[1, 2]]
        assert truncated(quantiles, 0).tolist() == [[1, 2, 3, 4, 5, 9]]

    def test_loss_of_one_quantile(self):
        """tau = ½: half the Huber loss, ½ · ½ · 0.5² near and ½ (3 - ½) far."""
        loss = quantile_huber(jnp.array([[1.0]]), jnp.array([[1.5]]))
        assert float(loss) == pytest.approx(0.5 * 0.125)
        loss = quantile_huber(jnp.array([[1.0]]), jnp.array([[4.0]]))
        assert float(loss) == pytest.approx(0.5 * 2.5)

    def test_loss_of_two_quantiles(self):
        """z = 0, 2 at levels ¼, ¾, and y = 1, -3.

        y - z = 1: ¼ · ½;  -3: ¾ · 2.5;  -1: ¼ · ½;  -5: ¼ · 4.5.
        """
        loss = quantile_huber(jnp.array([[0.0, 2.0]]), jnp.array([[1.0, -3.0]]))
        assert float(loss) == pytest.approx((0.125 + 1.875 + 0.125 + 1.125) / 4)

    def test_loss_is_a_mean_over_networks_and_rows(self):
        one = quantile_huber(jnp.array([[0.0, 2.0]]), jnp.array([[1.0, -3.0]]))
        quantiles = jnp.tile(jnp.array([0.0, 2.0]), (3, 5, 1))
        assert float(quantile_huber(quantiles, jnp.tile(jnp.array([1.0, -3.0]), (5, 1)))) == (
            pytest.approx(float(one))
        )

    def test_slopes_draw_quantiles_to_their_levels(self):
        """Far from all targets the slope of quantile i is its level, or 1 less above them."""
        slope = jax.grad(lambda z: quantile_huber(z, jnp.array([[0.0]])))
        np.testing.assert_allclose(slope(jnp.array([[-9.0, -9.0]])), [[-0.125, -0.375]])
        np.testing.assert_allclose(slope(jnp.array([[9.0, 9.0]])), [[0.375, 0.125]])

    def test_the_loss_is_smallest_at_the_quantiles(self):
        """Of a uniform distribution, up to what the Huber part rounds off."""
        targets = jnp.linspace(-50, 50, 2001)[None]
        quantiles = jnp.zeros((1, 4))
        step = jax.jit(jax.grad(lambda z: quantile_huber(z, targets)))
        for _ in range(3000):
            quantiles = quantiles - 20 * step(quantiles)
        np.testing.assert_allclose(quantiles[0], [-37.5, -12.5, 12.5, 37.5], atol=0.5)


def numpy_quantiles(values, observation, action):
    inputs = np.concatenate([observation, action], axis=1)
    return np.stack([numpy_mlp(pick(values, j), inputs) for j in (0, 1)])


def numpy_sample(policy, observation, key):
    """Actions and their log-densities, the textbook way."""
    noise = np.asarray(jax.random.normal(key, (7, 2), jnp.float32), np.float64)
    mean, log_std = np.split(numpy_mlp(policy, observation.astype(np.float64)), 2, axis=1)
    action = np.tanh(mean + np.exp(log_std) * noise)
    normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return action, np.sum(normal - np.log(1 - action**2), axis=1)


class TestSteps:
    made = TQC(**SMALL, initial_temperature=0.3, discount_factor=0.9)
    learner = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC)

    def test_target(self):
        action, log_density = numpy_sample(self.learner.policy, BATCH.next_observation, KEY)
        found = numpy_quantiles(self.learner.value, BATCH.next_observation, action)
        kept = np.sort(np.concatenate(found, axis=1), axis=1)[:, :4]
        soft = kept - 0.3 * log_density[:, None]
        expected = BATCH.reward[:, None] + 0.9 * BATCH.discount[:, None] * soft
        target = jax.jit(self.made.soft_target)(self.learner, BATCH, KEY)
        np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)

    def test_policy_loss(self):
        action, log_density = numpy_sample(self.learner.policy, BATCH.observation, KEY)
        value = numpy_quantiles(self.learner.value, BATCH.observation, action).mean(axis=(0, 2))
        guide = Guide(self.learner.policy, jnp.float32(0.0))
        _, metrics = jax.jit(self.made.policy_step)(self.learner, BATCH, guide, KEY)
        expected = np.mean(0.3 * log_density - value)
        assert float(metrics.loss) == pytest.approx(expected, rel=1e-4, abs=1e-5)

    def test_a_policy_step_leaves_the_critics(self):
        guide = Guide(self.learner.policy, jnp.float32(0.5))
        after, _ = jax.jit(self.made.policy_step)(self.learner, BATCH, guide, KEY)
        pairs = zip(
            leaves((after.value, after.targets, after.optimizers["value"])),
            leaves((self.learner.value, self.learner.targets, self.learner.optimizers["value"])),
            strict=True,
        )
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    def test_saturated_actions_have_finite_steps(self):
        """Means of 50 lead to actions of ±1, whose log-density through atanh is infinite."""
        layers = [dict(layer) for layer in self.learner.policy.params]
        layers[-1]["bias"] = jnp.array([50.0, -50.0, 0.0, 0.0])
        policy = jax.tree.unflatten(
            jax.tree.structure(self.learner.policy), jax.tree.leaves(layers)
        )
        learner = self.learner._replace(policy=policy)
        guide = Guide(policy, jnp.float32(0.5))
        learner, value = jax.jit(self.made.value_step)(learner, BATCH, KEY)
        learner, metrics = jax.jit(self.made.policy_step)(learner, BATCH, guide, KEY)
        assert all(np.isfinite(leaf).all() for leaf in leaves((learner, value, metrics)))

    def test_value_is_the_mean_of_all_quantiles(self):
        seen, action = BATCH.observation, BATCH.action
        expected = numpy_quantiles(self.learner.value, seen, action).mean(axis=(0, 2))
        np.testing.assert_allclose(
            self.made.action_value(self.learner, seen, action), expected, rtol=1e-4, atol=1e-5
        )
        assert quantiles_of(self.learner.value, seen, action).shape == (2, 7, 3)
        assert mean_quantile(self.learner.value, seen, action).shape == (7,)


def test_bad_values():
    assert "num_dropped must be below num_quantiles, 5" in problem_of(
        TQC(num_quantiles=5, num_dropped=5)
    )


@pytest.mark.parametrize(
    ("env", "dropped"),
    [
        ("Hopper-v5", 5),
        ("HalfCheetah-v5", 0),
        ("Walker2d-v5", 2),
        ("Ant-v5", 2),
        ("Pendulum-v1", 2),
    ],
)
def test_how_many_are_dropped_where(env, dropped):
    assert resolve(env, "single", "tqc").algorithm.num_dropped == dropped
