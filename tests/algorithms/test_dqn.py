"""DQN: its loss against float64 numpy, targets by hand, the fall of epsilon."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import DQN, dqn
from p3s.types import EnvSpec, Guide
from tests.helpers import problem_of
from tests.helpers_losses import check_loss, linear, log_softmax, numpy_mlp, random_batch

DISCRETE = EnvSpec.flat(3, 4, discrete=True)
TINY = {"hidden_sizes": (4,)}


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
        zero = np.zeros((3, 2))
        online, target = linear(zero, [1.0, 2.0]), linear(zero, [5.0, 3.0])
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
            seen.append(float(learner.policy["epsilon"].value))
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
            (
                {"epsilon_end": 0.5, "epsilon_start": 0.2},
                "epsilon_end must be at most epsilon_start, 0.2, not 0.5",
            ),
            ({"huber_threshold": float("inf")}, "huber_threshold must be"),
            ({"target_period": 0}, "must be at least 1"),
        ):
            assert message in problem_of(DQN(**fields))
