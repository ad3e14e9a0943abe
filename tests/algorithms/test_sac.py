"""The losses of both SACs, against float64 numpy written from the equations."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SAC, SAC2018, sac, sac_2018
from p3s.algorithms.off_policy import bootstrap, q_values, value_loss
from p3s.algorithms.parts import squashed_gaussian as squashed
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers_losses import check_loss, numpy_mlp, random_batch

CONTINUOUS = EnvSpec.flat(3, 2)
NOISE = np.random.default_rng(5).normal(size=(7, 2)).astype(np.float32)
TINY = {"hidden_sizes": (4,)}
smallest = partial(SAC().combine, key=jax.random.key(0))


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


class TestSAC:
    learner, guide = (SAC(**TINY).init(jax.random.key(seed), CONTINUOUS) for seed in (1, 2))
    batch = random_batch(CONTINUOUS, 0)

    def test_target(self):
        action, log_density = numpy_sample(self.learner.policy, self.batch.next_observation)
        smaller = numpy_q(self.guide.value, self.batch.next_observation, action).min(axis=0)
        expected = self.batch.reward + self.batch.discount * 0.9 * (smaller - 0.3 * log_density)
        next_value = sac.soft_next_values(
            self.learner.policy, self.guide.value, smallest, self.batch, NOISE, jnp.float32(0.3)
        )
        target = bootstrap(self.batch, 0.9, next_value)
        np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5)

    def test_value_loss(self):
        target = np.linspace(-1, 1, 7).astype(np.float32)

        def expected(values):
            errors = numpy_q(values, self.batch.observation, self.batch.action) - target
            return np.mean(errors**2, axis=1).sum()

        check_loss(
            lambda value: value_loss(value, self.batch, target)[0], expected, self.learner.value
        )

    def test_policy_loss(self):
        seen = self.batch.observation
        other = numpy_gaussian(self.guide.policy, seen)

        def expected(policy):
            action, log_density = numpy_sample(policy, seen)
            smaller = numpy_q(self.learner.value, seen, action).min(axis=0)
            distance = numpy_kl(numpy_gaussian(policy, seen), other).mean()
            return np.mean(0.3 * log_density - smaller) + 0.7 * distance

        def estimate(observation, action):
            return q_values(self.learner.value, observation, action).min(axis=0)

        guide = squashed.gaussian(self.guide.policy, seen)
        check_loss(
            lambda policy: squashed.policy_loss(
                policy, estimate, seen, NOISE, 0.3, guide, jnp.float32(0.7)
            )[0],
            expected,
            self.learner.policy,
        )

    def test_temperature_follows_the_entropy(self):
        """The first step of Adam has the size of the learning rate, 3e-4."""
        guide = Guide(self.learner.policy, jnp.float32(0.0))
        for goal, sign in ((20.0, 1), (-20.0, -1)):  # too little entropy, too much
            algorithm = SAC(**TINY, target_entropy=goal)
            moved, metrics = jax.jit(algorithm.policy_step)(
                self.learner, self.batch, guide, jax.random.key(0)
            )
            assert np.sign(2 * goal - float(metrics.more["entropy"])) == sign
            log_temperature = float(moved.extra["log_temperature"])
            assert np.sign(log_temperature) == sign
            assert abs(log_temperature) == pytest.approx(3e-4, rel=1e-3)

    def test_what_a_subclass_keeps_stays(self):
        """An algorithm derived from SAC may have a number and a target of its own."""
        own, policy = {"own": jnp.float32(7.0)}, self.learner.policy
        learner = self.learner._replace(
            extra={**self.learner.extra, **own},
            targets={**self.learner.targets, "policy": policy},
        )
        algorithm, key = SAC(**TINY), jax.random.key(0)
        after, _ = algorithm.value_step(learner, self.batch, key)
        after, _ = algorithm.policy_step(after, self.batch, Guide(policy, jnp.float32(0.0)), key)
        assert jax.tree.structure(after) == jax.tree.structure(learner)
        assert after.extra["own"] == own["own"]

    def test_state_value_loss(self):
        """2018: V is drawn to min Q(s, a~) - alpha log pi, Q to scale * r + discount gamma V'."""
        algorithm = SAC2018(**TINY, temperature=0.3, reward_scale=2.0, discount_factor=0.9)
        learner = algorithm.init(jax.random.key(3), CONTINUOUS)
        target = np.linspace(-1, 1, 7)
        seen = self.batch.observation
        check_loss(
            lambda value: sac_2018.state_value_loss(value, seen, target.astype(np.float32))[0],
            lambda value: 0.5 * np.mean((numpy_mlp(value, seen)[:, 0] - target) ** 2),
            learner.value["v"],
        )
        _, metrics = algorithm.value_step(learner, self.batch, jax.random.key(0))
        ahead = numpy_mlp(learner.targets["value"], self.batch.next_observation)[:, 0]
        expected = 2 * self.batch.reward + self.batch.discount * 0.9 * ahead
        assert float(metrics.target_mean) == pytest.approx(expected.mean(), rel=1e-5)
