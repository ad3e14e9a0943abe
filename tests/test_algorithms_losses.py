"""The losses of SAC, discrete SAC and DQN: against float64 numpy, by finite differences, by hand.

Each numpy loss is written from the equations; `check_loss` compares its value and, by finite
differences, its slopes with what the compiled code computes in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import DQN, SAC, SAC2018, SACDiscrete, dqn, sac, sac_2018, sac_discrete
from p3s.algorithms import squashed_gaussian as squashed
from p3s.algorithms.off_policy import value_loss
from p3s.algorithms.parts.categorical import categorical_kl
from p3s.learning.learners import pick
from p3s.networks import follow_every
from p3s.types import EnvSpec, Guide

from .test_algorithms import random_batch
from .test_td3 import numpy_mlp

CONTINUOUS, DISCRETE = EnvSpec(3, 2), EnvSpec(3, 4, discrete=True)
NOISE = np.random.default_rng(5).normal(size=(7, 2)).astype(np.float32)
TINY = {"hidden_sizes": (4,)}


def check_loss(loss, numpy_loss, params) -> None:
    value, gradient = jax.value_and_grad(loss)(params)
    exact = jax.tree.map(lambda leaf: np.array(leaf, np.float64), params)
    assert float(value) == pytest.approx(numpy_loss(exact), rel=1e-5, abs=1e-6)
    for leaf, slopes in zip(jax.tree.leaves(exact), jax.tree.leaves(gradient), strict=True):
        for index in np.ndindex(leaf.shape):
            kept, ends = leaf[index], []
            for step in (1e-5, -1e-5):
                leaf[index] = kept + step
                ends.append(numpy_loss(exact))
            leaf[index] = kept
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(slopes[index]) == pytest.approx(slope, rel=1e-3, abs=5e-5)


def numpy_gaussian(policy, observation):
    mean, log_std = np.split(numpy_mlp(policy, observation.astype(np.float64)), 2, axis=1)
    return mean, np.clip(log_std, -20, 2)


def numpy_sample(policy, observation):
    """Actions and log-densities, with the textbook form of the tanh correction."""
    mean, log_std = numpy_gaussian(policy, observation)
    before = mean + np.exp(log_std) * NOISE
    normal = -0.5 * ((before - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(before), np.sum(normal - np.log(1 - np.tanh(before) ** 2), axis=1)


def numpy_q(values, observation, action):
    inputs = np.concatenate([observation, action], axis=1)
    return np.stack([numpy_mlp(pick(values, j), inputs)[:, 0] for j in (0, 1)])


def numpy_kl(ours, other):
    (mean, log_std), (far, far_log_std) = ours, other
    ratio = (np.exp(2 * log_std) + (mean - far) ** 2) / (2 * np.exp(2 * far_log_std))
    return np.sum(far_log_std - log_std + ratio - 0.5, axis=1)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class TestSAC:
    learner, guide = (SAC(**TINY).init(jax.random.key(seed), CONTINUOUS) for seed in (1, 2))
    batch = random_batch(CONTINUOUS, 0)

    def test_target(self):
        action, log_density = numpy_sample(self.learner.policy, self.batch.next_observation)
        smaller = numpy_q(self.guide.value, self.batch.next_observation, action).min(axis=0)
        expected = self.batch.reward + self.batch.discount * 0.9 * (smaller - 0.3 * log_density)
        target = sac.soft_td_target(
            self.learner.policy, self.guide.value, self.batch, NOISE, jnp.float32(0.3), 0.9
        )
        np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5)

    def test_value_loss(self):
        target = np.linspace(-1, 1, 7).astype(np.float32)

        def expected(values):
            errors = numpy_q(values, self.batch.observation, self.batch.action) - target
            return np.mean(errors**2, axis=1).sum()

        check_loss(
            lambda value: value_loss(value, self.batch, target), expected, self.learner.value
        )

    def test_policy_loss(self):
        seen = self.batch.observation
        other = numpy_gaussian(self.guide.policy, seen)

        def expected(policy):
            action, log_density = numpy_sample(policy, seen)
            smaller = numpy_q(self.learner.value, seen, action).min(axis=0)
            distance = numpy_kl(numpy_gaussian(policy, seen), other).mean()
            return np.mean(0.3 * log_density - smaller) + 0.7 * distance

        guide = squashed.gaussian(self.guide.policy, seen)
        check_loss(
            lambda policy: squashed.policy_loss(
                policy, self.learner.value, seen, NOISE, 0.3, guide, jnp.float32(0.7)
            )[0],
            expected,
            self.learner.policy,
        )

    def test_temperature_follows_the_entropy(self):
        algorithm = SAC(**TINY)
        extra = algorithm.start_temperature()
        for entropy, sign in ((-5.0, 1), (5.0, -1)):  # too little, too much
            moved = algorithm.adapt_temperature(extra, jnp.float32(entropy), -2.0)
            assert np.sign(float(moved["log_temperature"])) == sign
            assert abs(float(moved["log_temperature"])) == pytest.approx(3e-4, rel=1e-3)

    def test_state_value_loss(self):
        """2018: V is drawn to min Q(s, a~) - alpha log pi, Q to scale * r + discount gamma V'."""
        algorithm = SAC2018(**TINY, temperature=0.3, reward_scale=2.0, discount=0.9)
        learner = algorithm.init(jax.random.key(3), CONTINUOUS)
        target = np.linspace(-1, 1, 7)
        seen = self.batch.observation
        check_loss(
            lambda value: sac_2018.state_value_loss(value, seen, target.astype(np.float32)),
            lambda value: 0.5 * np.mean((numpy_mlp(value, seen)[:, 0] - target) ** 2),
            learner.value["v"],
        )
        _, metrics = algorithm.value_step(learner, self.batch, jax.random.key(0))
        ahead = numpy_mlp(learner.extra["target_v"], self.batch.next_observation)[:, 0]
        expected = 2 * self.batch.reward + self.batch.discount * 0.9 * ahead
        assert float(metrics["target_mean"]) == pytest.approx(expected.mean(), rel=1e-5)


class TestSACDiscrete:
    learner, guide = (SACDiscrete(**TINY).init(jax.random.key(seed), DISCRETE) for seed in (1, 2))
    batch = random_batch(DISCRETE, 0)

    def test_value_loss(self):
        target = np.linspace(-1, 1, 7).astype(np.float32)

        def expected(values):
            rows = np.arange(7), self.batch.action
            outputs = [numpy_mlp(pick(values, j), self.batch.observation)[rows] for j in (0, 1)]
            return sum(0.5 * np.mean((output - target) ** 2) for output in outputs)

        check_loss(
            lambda values: sac_discrete.value_loss(values, self.batch, target),
            expected,
            self.learner.value,
        )

    def test_policy_loss(self):
        seen = self.batch.observation
        values = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)
        other = log_softmax(numpy_mlp(self.guide.policy, seen))

        def expected(policy):
            logs = log_softmax(numpy_mlp(policy, seen))
            terms = np.exp(logs) * (0.3 * logs - values + 0.7 * (logs - other))
            return terms.sum(axis=1).mean()

        guide_logits = numpy_mlp(self.guide.policy, seen).astype(np.float32)
        check_loss(
            lambda policy: sac_discrete.policy_loss(
                policy, values, seen, jnp.float32(0.3), guide_logits, jnp.float32(0.7)
            )[0],
            expected,
            self.learner.policy,
        )

    def test_soft_value_by_hand(self):
        """Two equally likely actions: the mean of Q plus alpha log 2."""
        value, entropy = sac_discrete.soft_state_value(
            jnp.zeros(2), jnp.array([1.0, 3.0]), jnp.float32(0.5)
        )
        assert float(entropy) == pytest.approx(np.log(2))
        assert float(value) == pytest.approx(2 + 0.5 * np.log(2))


class TestDQN:
    batch = random_batch(DISCRETE, 0)

    @pytest.mark.parametrize("dueling", [False, True])
    def test_loss(self, dueling):
        algorithm = DQN(**TINY, dueling=dueling, huber_threshold=0.8, boltzmann_temperature=0.5)
        learner, guide = (algorithm.init(jax.random.key(seed), DISCRETE) for seed in (1, 2))
        target = 2 * np.linspace(-1, 1, 7).astype(np.float32)
        seen = self.batch.observation

        def numpy_values(layers):
            outputs = numpy_mlp(layers, seen)
            if not dueling:
                return outputs
            return outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(axis=1, keepdims=True)

        other = log_softmax(numpy_values(guide.policy["layers"]) / 0.5)

        def expected(layers):
            values = numpy_values(layers)
            errors = np.abs(values[np.arange(7), self.batch.action] - target)
            losses = np.where(errors < 0.8, 0.5 * errors**2, 0.8 * (errors - 0.4))
            logs = log_softmax(values / 0.5)
            return losses.mean() + 0.7 * (np.exp(logs) * (logs - other)).sum(axis=1).mean()

        guide_values = dqn.all_q_values(guide.policy["layers"], seen, dueling)
        check_loss(
            lambda layers: dqn.q_loss(
                layers, self.batch, target, guide_values, jnp.float32(0.7), algorithm
            )[0],
            expected,
            learner.policy["layers"],
        )

    def test_target_by_hand(self):
        """Online Q = (1, 2) prefers action 1; target Q = (5, 3) is 3 there, 5 at its own best."""

        def constant(values):
            return [{"weight": jnp.zeros((3, 2)), "bias": jnp.array(values, jnp.float32)}]

        online, target = constant([1.0, 2.0]), constant([5.0, 3.0])
        for double, ahead in ((True, 3.0), (False, 5.0)):
            found = dqn.q_target(online, target, self.batch, 0.9, double, False)
            expected = self.batch.reward + self.batch.discount * 0.9 * ahead
            np.testing.assert_allclose(found, expected, rtol=1e-6)

    def test_epsilon_falls_in_a_line_and_travels_with_the_policy(self):
        algorithm = DQN(**TINY, epsilon_start=0.9, epsilon_end=0.3, epsilon_updates=4)
        learner = algorithm.init(jax.random.key(0), DISCRETE)
        step = jax.jit(algorithm.policy_step)
        seen = []
        for _ in range(6):
            seen.append(float(learner.policy["epsilon"]))
            guide = Guide(learner.policy, jnp.float32(0.0))
            learner, _ = step(learner, self.batch, guide, jax.random.key(0))
        assert seen == pytest.approx([0.9, 0.75, 0.6, 0.45, 0.3, 0.3])
        observations = np.zeros((4000, 3), np.float32)
        greedy, noisy = (
            algorithm.act(learner.policy, observations, jax.random.key(1), explore=explore)
            for explore in (False, True)
        )
        # Of the random actions one in four is the greedy one.
        assert float((greedy != noisy).mean()) == pytest.approx(0.3 * 3 / 4, abs=0.03)

    def test_bad_values(self):
        for fields, message in (
            ({"policy_period": 2}, "policy_period of dqn must be 1"),
            ({"epsilon_end": 0.5, "epsilon_start": 0.2}, "epsilon_end <= epsilon_start"),
            ({"huber_threshold": float("inf")}, "huber_threshold must be"),
            ({"target_period": 0}, "must be at least 1"),
        ):
            assert message in (DQN(**fields).problem() or "")


def test_hard_and_soft_targets():
    targets, online = jnp.array([0.1, 7.3]), jnp.array([0.7, 1e-7])
    hard = [follow_every(targets, online, 1.0, jnp.int32(count), 3) for count in (2, 3)]
    assert jnp.array_equal(hard[0], targets)
    assert jnp.array_equal(hard[1], online)
    soft = follow_every(targets, online, 0.25, jnp.int32(1), 1)
    np.testing.assert_allclose(soft, 0.75 * targets + 0.25 * online)


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
