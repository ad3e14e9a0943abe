"""Soft Q-learning: losses and Stein directions against float64 numpy, and its distance."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SQL, sql
from p3s.config.run import resolve
from p3s.types import EnvSpec
from tests.helpers import problem_of
from tests.helpers_losses import check_loss, linear, numpy_mlp, random_batch

SPEC = EnvSpec.flat(3, 2)
TINY = SQL(hidden_sizes=(4,), reward_scale=2.0, discount_factor=0.9)
LEARNER, OTHER = (TINY.init(jax.random.key(seed), SPEC) for seed in (1, 2))
BATCH = random_batch(SPEC, 0)
NOISE = np.random.default_rng(5).normal(size=(7, 4, 2)).astype(np.float32)


def numpy_inputs(observation, particles):
    repeated = np.repeat(observation[:, None, :], particles.shape[1], axis=1)
    return np.concatenate([repeated, particles], axis=-1).astype(np.float64)


def numpy_actions(policy, noise=NOISE):
    return np.tanh(numpy_mlp(policy, numpy_inputs(BATCH.observation, noise)))


def numpy_log_density(value, observation, action):
    inputs = np.concatenate([observation, action], axis=-1)
    return numpy_mlp(value, inputs)[..., 0] + np.log(1 - action**2 + 1e-6).sum(axis=-1)


def slope(function, point, step=1e-6):
    """The gradient of a function of a vector, by central differences."""
    directions = step * np.eye(len(point))
    ends = [[function(point + d), function(point - d)] for d in directions]
    return np.array([(high - low) / (2 * step) for high, low in ends])


class TestValue:
    def test_target(self):
        """y = scale r + discount gamma (log mean exp Q' + 2 log 2) on the actions drawn."""
        learner = LEARNER._replace(targets={"value": OTHER.value})
        key = jax.random.key(7)
        actions = np.asarray(jax.random.uniform(key, (7, 16, 2), jnp.float32, -1, 1), np.float64)
        values = numpy_mlp(OTHER.value, numpy_inputs(BATCH.next_observation, actions))[..., 0]
        soft = np.log(np.exp(values).mean(axis=1)) + 2 * np.log(2)
        target = 2.0 * BATCH.reward + BATCH.discount * 0.9 * soft
        _, metrics = TINY.value_step(learner, BATCH, key)
        assert float(metrics.target_mean) == pytest.approx(target.mean(), rel=1e-5)
        inputs = np.concatenate([BATCH.observation, BATCH.action], axis=1)
        loss = 0.5 * np.mean((numpy_mlp(LEARNER.value, inputs)[:, 0] - target) ** 2)
        assert float(metrics.loss) == pytest.approx(loss, rel=1e-5)

    def test_soft_value_is_the_integral(self):
        """Q = k a has log of its integral over [-1, 1] at log(2 sinh(k) / k)."""
        value = linear([[0.0], [3.0]], [0.0], 1, 1)
        grid = (np.arange(1000, dtype=np.float32) + 0.5)[:, None] / 500 - 1
        found = sql.soft_value(value, jnp.zeros(1), grid)
        assert float(found) == pytest.approx(np.log(2 * np.sinh(3) / 3), rel=1e-4)

    def test_loss(self):
        target = np.linspace(-1, 1, 7).astype(np.float32)
        inputs = np.concatenate([BATCH.observation, BATCH.action], axis=1)
        check_loss(
            lambda value: sql.value_loss(value, BATCH, target)[0],
            lambda value: 0.5 * np.mean((numpy_mlp(value, inputs)[:, 0] - target) ** 2),
            LEARNER.value,
        )

    def test_targets_are_copied_now_and_then(self):
        algorithm = SQL(hidden_sizes=(4,), target_period=2)
        learner = algorithm.init(jax.random.key(0), SPEC)
        first, _ = algorithm.value_step(learner, BATCH, jax.random.key(0))
        second, _ = algorithm.value_step(first, BATCH, jax.random.key(1))
        for after, expected in ((first, learner), (second, second)):
            same = jax.tree.map(np.array_equal, after.targets["value"], expected.value)
            assert jax.tree.all(same)


class TestPolicy:
    def test_gradient_of_the_log_density(self):
        seen, action = (np.float64(part) for part in (BATCH.observation, BATCH.action))
        found = jax.grad(lambda a: sql.log_density(LEARNER.value, BATCH.observation, a).sum())(
            BATCH.action
        )
        for row in range(7):

            def density(point, row=row):
                return numpy_log_density(LEARNER.value, seen[row], point)

            np.testing.assert_allclose(found[row], slope(density, action[row]), rtol=1e-3)

    def test_stein_direction(self):
        """Written out in loops, the kernel's slope by differences."""
        draw = np.random.default_rng(0)
        fixed, moving, gradients = (draw.uniform(-1, 1, (4, 2)) for _ in range(3))
        squares = [((a - b) ** 2).sum() for a in fixed for b in moving]
        bandwidth = np.median(squares) / np.log(4)
        expected = np.zeros_like(moving)
        for i, mover in enumerate(moving):

            def kernel(point, mover=mover):
                return np.exp(-((point - mover) ** 2).sum() / bandwidth)

            terms = [
                kernel(a) * g + slope(kernel, a) for a, g in zip(fixed, gradients, strict=True)
            ]
            expected[i] = np.mean(terms, axis=0)
        found = sql.stein_direction(*(jnp.float32(part) for part in (fixed, moving, gradients)))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

    def test_bandwidth_has_a_floor(self):
        same = jnp.full((4, 1), 0.3)
        assert np.array_equal(sql.stein_direction(same, same, jnp.ones((4, 1))), np.ones((4, 1)))

    @pytest.mark.slow
    def test_stein_directions_lead_to_the_distribution(self):
        """Particles that follow them come to have the mean and deviation of N(0.3, 0.5²)."""

        @jax.jit
        def settle(particles):
            def move(particles, _):
                gradients = -(particles - 0.3) / 0.25
                return particles + 0.05 * sql.stein_direction(particles, particles, gradients), None

            return jax.lax.scan(move, particles, None, 2000)[0]

        particles = settle(jnp.linspace(-1.0, -0.5, 32)[:, None])
        assert float(particles.mean()) == pytest.approx(0.3, abs=0.02)
        assert float(particles.std()) == pytest.approx(0.5, rel=0.1)

    def test_loss(self):
        direction = np.random.default_rng(1).normal(size=(7, 4, 2)).astype(np.float32)
        guide = numpy_actions(OTHER.policy)

        def expected(policy):
            actions = numpy_actions(policy)
            distance = 0.5 * ((actions - guide) ** 2).sum(axis=-1).mean()
            return -np.mean((actions * direction).sum(axis=-1)) + 0.7 * distance

        check_loss(
            lambda policy: sql.policy_loss(
                policy, BATCH.observation, NOISE, direction, np.float32(guide), jnp.float32(0.7)
            )[0],
            expected,
            LEARNER.policy,
        )

    def test_noiseless_is_the_action_of_no_noise(self):
        action = TINY.act(LEARNER.policy, BATCH.observation, jax.random.key(0), explore=False)
        expected = numpy_actions(LEARNER.policy, np.zeros((7, 1, 2)))[:, 0]
        np.testing.assert_allclose(action, expected, atol=1e-6)


class TestDistance:
    def moved(self, shift):
        """The policy's actions before tanh, all moved by the same."""
        layers = [dict(layer) for layer in LEARNER.policy.params]
        layers[-1]["bias"] = layers[-1]["bias"] + shift
        return replace(LEARNER.policy, params=layers)

    def test_zero_for_equal_and_growing_with_the_difference(self):
        distances = [
            np.asarray(TINY.distance_between(LEARNER.policy, self.moved(shift), BATCH.observation))
            for shift in (0.0, 0.1, 0.2, 0.4, 0.8)
        ]
        assert np.array_equal(distances[0], np.zeros(7))
        assert all((less < more).all() for less, more in pairwise(distances))

    def test_policies_that_ignore_the_noise(self):
        """Then it is TD3's ½‖.‖²."""

        def deaf(policy):
            first, *others = policy.params
            weight = first["weight"].at[3:].set(0.0)
            return replace(policy, params=[{**first, "weight": weight}, *others])

        ours, theirs = deaf(LEARNER.policy), deaf(OTHER.policy)
        gap = numpy_actions(ours)[:, 0] - numpy_actions(theirs)[:, 0]
        found = TINY.distance_between(ours, theirs, BATCH.observation)
        np.testing.assert_allclose(found, 0.5 * (gap**2).sum(axis=1), rtol=1e-4, atol=1e-7)

    def test_few_noises_stand_for_all(self):
        """tanh(v z) against tanh(w z): near to the expectation over z, by quadrature."""
        narrow, wide = (linear([[0.0], [scale]], [0.0], 1, 1) for scale in (0.3, 1.0))
        z = np.linspace(-8, 8, 20_001)
        normal = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        exact = np.trapezoid(0.5 * (np.tanh(0.3 * z) - np.tanh(z)) ** 2 * normal, z)
        found = TINY.distance_between(narrow, wide, np.zeros((1, 1), np.float32))
        assert float(found[0]) == pytest.approx(exact, rel=0.2)

    @pytest.mark.parametrize("size", [1, 2, 6])
    def test_quasi_random_noise(self, size):
        points = sql.quasi_normal_noise(64, size)
        np.testing.assert_allclose(points.mean(axis=0), 0, atol=0.1)
        np.testing.assert_allclose(points.std(axis=0), 1, atol=0.15)
        correlation = np.corrcoef(points.T) if size > 1 else np.eye(1)
        np.testing.assert_allclose(correlation, np.eye(size), atol=0.25)
        assert len(np.unique(points[:, 0])) == 64


def test_median_with_ties_and_of_odd_counts():
    draw = np.random.default_rng(0)
    for values in (draw.normal(size=8), draw.integers(0, 3, 10), np.ones(4), draw.normal(size=9)):
        assert float(sql.median(jnp.float32(values))) == np.float32(np.median(values))


def test_bad_values():
    for fields, message in (
        ({"num_particles": 7}, "num_particles must be even"),
        ({"num_value_actions": 0}, "must be at least 1"),
        ({"reward_scale": 0.0}, "reward_scale must be above 0"),
    ):
        assert message in problem_of(SQL(**fields))


@pytest.mark.parametrize(
    ("env", "algorithm", "scale"),
    [("Hopper-v5", "sql", 30), ("HalfCheetah-v5", "sql", 30), ("Swimmer-v5", "sql", 30),
     ("Walker2d-v5", "sql", 10), ("Ant-v5", "sql", 300), ("Pendulum-v1", "sql", 30),
     ("Hopper-v5", "sac_2018", 5), ("Swimmer-v5", "sac_2018", 25)],
)  # fmt: skip
def test_reward_scales_of_the_original_codes(env, algorithm, scale):
    assert resolve(env, "single", algorithm).algorithm.reward_scale == scale
    assert resolve(env, "single", algorithm, reward_scale=2.0).algorithm.reward_scale == 2
