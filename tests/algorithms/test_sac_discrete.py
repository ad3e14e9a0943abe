"""The losses of discrete SAC: against float64 numpy, and by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SACDiscrete, sac_discrete
from p3s.trees import pick
from p3s.types import EnvSpec
from tests.helpers_losses import check_loss, log_softmax, numpy_mlp, random_batch

DISCRETE = EnvSpec.flat(3, 4, discrete=True)
TINY = {"hidden_sizes": (4,)}


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
            lambda values: sac_discrete.value_loss(values, self.batch, target)[0],
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
