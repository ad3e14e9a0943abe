"""TD3's losses and P3S's augmented loss: by hand, by float64 numpy, by finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms.off_policy import bootstrap, value_loss
from p3s.algorithms.parts.deterministic import policy_loss, squared_distance, target_values
from p3s.algorithms.td3 import TD3
from p3s.learning.learners import init_learners, update_learners
from p3s.networks import init_mlp
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Transition
from tests.helpers_losses import linear, numpy_mlp, random_batch

SPEC = EnvSpec.flat(3, 2)


def test_target_by_hand():
    """One-dimensional, linear: pi'(s') = tanh(0) = 0, smoothed to 0.5; Q' = 2a and 3a + 1."""
    policy = linear([[0.0]], [0.0])
    values = jax.tree.map(
        lambda *pair: jnp.stack(pair),
        linear([[0.0], [2.0]], [0.0], 1, 1),
        linear([[0.0], [3.0]], [1.0], 1, 1),
    )
    one = np.ones((2, 1), np.float32)
    batch = Transition(one, one, np.array([1.0, 1.0], np.float32), np.array([1.0, 0.0]), one)

    def target(noise):
        ahead = target_values(policy, values, batch, jnp.full((2, 1), noise))
        return bootstrap(batch, 0.9, TD3().combine(ahead, jax.random.key(0))).tolist()

    # min(2 * 0.5, 3 * 0.5 + 1) = 1; a termination does not look ahead.
    assert target(0.5) == pytest.approx([1 + 0.9 * 1.0, 1.0])
    # The smoothed action is clipped to [-1, 1]: min(2 * 1, 3 * 1 + 1) = 2.
    assert target(7.0) == pytest.approx([1 + 0.9 * 2.0, 1.0])


def test_value_loss_is_the_sum_of_both_mean_squares():
    learner = TD3(hidden_sizes=(5, 4)).init(jax.random.key(0), SPEC)
    batch, target = random_batch(SPEC, 0), np.linspace(-1, 1, 7).astype(np.float32)
    inputs = np.concatenate([batch.observation, batch.action], axis=1)
    expected = sum(
        np.mean((numpy_mlp(pick(learner.value, j), inputs)[:, 0] - target) ** 2) for j in (0, 1)
    )
    assert float(value_loss(learner.value, batch, target)[0]) == pytest.approx(expected, rel=1e-5)


def test_augmented_loss_by_hand():
    """Two learners in one dimension; pi(s) = tanh(w s), Q(s, a) = 3a, s = 1.

    Learner 0: w = 0, a = 0. Learner 1, the best and guide: w = atanh(0.5), a = 0.5.
    Loss of learner 0: -3 * 0 + beta * 1/2 * 0.25; its gradient: (-3 + beta * (0 - 0.5)) * 1.
    Loss of the best: -3 * 0.5; its gradient: -3 * (1 - 0.25).
    """
    value, observation = linear([[0.0], [3.0]], [0.0], 1, 1), jnp.ones((1, 1))
    guide_action = jnp.full((1, 1), 0.5)
    beta = 4.0

    def loss(weight, pull):
        policy = linear(weight.reshape(1, 1), [0.0])
        return policy_loss(policy, value, observation, guide_action, pull, "sum")[0]

    other, best = jnp.float32(0.0), jnp.arctanh(jnp.float32(0.5))
    assert float(loss(other, beta)) == pytest.approx(0.5)
    assert float(jax.grad(loss)(other, beta)) == pytest.approx(-5.0)
    assert float(loss(best, 0.0)) == pytest.approx(-1.5)
    assert float(jax.grad(loss)(best, 0.0)) == pytest.approx(-2.25)


def test_policy_gradient_by_finite_differences():
    algorithm = TD3(hidden_sizes=(4,))
    learner, guide = (algorithm.init(jax.random.key(seed), SPEC) for seed in (1, 2))
    observation = random_batch(SPEC, 3).observation.astype(np.float64)

    def loss(policy):
        action = np.tanh(numpy_mlp(policy, observation))
        other = np.tanh(numpy_mlp(guide.policy, observation))
        value = numpy_mlp(pick(learner.value, 0), np.concatenate([observation, action], axis=1))
        return np.mean(-value[:, 0] + 0.7 * 0.5 * np.sum((action - other) ** 2, axis=1))

    gradient = jax.grad(lambda policy: policy_loss(
        policy, pick(learner.value, 0), jnp.float32(observation),
        jnp.float32(np.tanh(numpy_mlp(guide.policy, observation))), 0.7, "sum",
    )[0])(learner.policy)  # fmt: skip
    policy = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), learner.policy)
    for layer, slopes in zip(policy.params, gradient.params, strict=True):
        for name, leaf in layer.items():
            for index in np.ndindex(leaf.shape):
                kept = leaf[index]
                leaf[index] = kept + 1e-5
                above = loss(policy)
                leaf[index] = kept - 1e-5
                below = loss(policy)
                leaf[index] = kept
                slope = (above - below) / 2e-5
                assert float(slopes[name][index]) == pytest.approx(slope, abs=2e-5)


def test_distance_sums_or_averages_over_action_dimensions():
    actions, others = jnp.array([[0.0, 0.5], [1.0, 1.0]]), jnp.array([[0.0, -0.5], [0.0, -1.0]])
    assert squared_distance(actions, others, "sum").tolist() == [0.5, 2.5]
    assert squared_distance(actions, others, "mean").tolist() == [0.25, 1.25]


def test_guide_pulls_only_those_with_a_weight():
    """Two equal learners on equal batches: they part only where the weight differs."""
    algorithm = TD3(hidden_sizes=(8,), batch_size=7)
    learners = init_learners(algorithm, jax.random.key(0), SPEC, 2, identical=True)
    guide = algorithm.init(jax.random.key(9), SPEC).policy
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), random_batch(SPEC, 5))

    def after(weights):
        pull = Guide(guide, jnp.array(weights, jnp.float32))
        with_noise_off = TD3(hidden_sizes=(8,), batch_size=7, target_noise=0.0)
        update = jax.jit(update_learners, static_argnums=(0, 6))
        key, both = jax.random.key(1), jnp.arange(2)
        new, _ = update(with_noise_off, learners, batch, pull, key, both, True)
        return new.policy

    def equal(policies):
        return all(bool((leaf[0] == leaf[1]).all()) for leaf in jax.tree.leaves(policies))

    assert equal(after([0.0, 0.0]))
    assert not equal(after([5.0, 0.0]))


class TestInitialization:
    def test_fan_in(self):
        layers = init_mlp(jax.random.key(0), [3, 2], [400], 1, "fan_in")
        for layer, fan_in in zip(layers, (5, 400), strict=True):
            for leaf in layer.values():
                assert float(jnp.abs(leaf).max()) <= 1 / np.sqrt(fan_in)
        assert float(jnp.abs(layers[0]["weight"]).max()) > 0.98 / np.sqrt(5)

    def test_xavier_has_a_fan_in_for_each_input(self):
        first, second = init_mlp(jax.random.key(0), [3, 2], [400], 1, "xavier")
        observation, action = first["weight"][:3], first["weight"][3:]
        assert 0.98 < float(jnp.abs(observation).max()) / np.sqrt(6 / 403) <= 1
        assert 0.98 < float(jnp.abs(action).max()) / np.sqrt(6 / 402) <= 1
        assert float(jnp.abs(first["bias"]).max()) == float(jnp.abs(second["bias"]).max()) == 0

    def test_joint_xavier_has_one_fan_in(self):
        first, second = init_mlp(jax.random.key(0), [3, 2], [400], 1, "xavier_joint")
        for part in (first["weight"][:3], first["weight"][3:]):
            assert 0.98 < float(jnp.abs(part).max()) / np.sqrt(6 / 405) <= 1
        assert float(jnp.abs(first["bias"]).max()) == float(jnp.abs(second["bias"]).max()) == 0

    def test_targets_start(self):
        for start, equal in (("online", True), ("independent", False)):
            learner = TD3(hidden_sizes=(8,), targets_start=start).init(jax.random.key(0), SPEC)
            same = jnp.array_equal(
                learner.policy.params[0]["weight"],
                learner.targets["policy"].params[0]["weight"],
            )
            assert bool(same) is equal
