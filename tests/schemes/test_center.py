"""Center: its gradient by hand, its pull, its evaluation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.learning.learners import distances
from p3s.schemes.center import center_loss
from tests.helpers import trained
from tests.helpers_losses import linear

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))


class TestCenter:
    def test_gradient_of_the_center_by_hand(self):
        """Linear policies without input: actions tanh(0.2), tanh(0.4); center at tanh(0.1).

        d/dc beta sum_i ½(a_i - tanh(c))² = beta sum_i (tanh(c) - a_i)(1 - tanh(c)²).
        """
        algorithm = dataclasses.replace(TINY, hidden_sizes=())
        start, *others = (linear(np.zeros((2, 1)), [bias]) for bias in (0.1, 0.2, 0.4))
        policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *others)
        gradient = jax.grad(center_loss)(start, algorithm, policies, jnp.zeros((5, 2)), 3.0)
        center = np.tanh(0.1)
        expected = 3.0 * (2 * center - np.tanh(0.2) - np.tanh(0.4)) * (1 - center**2)
        assert float(gradient.params[0]["bias"][0]) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.slow
    def test_everyone_is_pulled_and_the_center_follows(self):
        pulled = trained(400, scheme="center", beta=1e4, review_period=2)
        free = trained(400, scheme="center", beta=0.0, review_period=2)
        loss = {run: run.last_review["center_loss"] for run in (pulled, free)}
        assert free.last_review["center_loss"] == 0
        observations = pulled.experience.ring.rows[:100, :4]
        spread = {
            run: distances(run.config.algorithm, run.scheme.policies(run.crew.updater.state),
                           run.crew.updater.state.center, observations).sum()
            for run in (pulled, free)
        }  # fmt: skip
        assert loss[pulled] > 0
        assert spread[pulled] < spread[free]

    def test_center_is_evaluated_beside_the_learners(self):
        row = trained(400, scheme="center").evaluated[-1]
        assert np.shape(row["learner_returns"]) == (4, 2)
        assert np.shape(row["center_returns"]) == (2,)
        assert row["score"] == np.mean(row["learner_returns"], axis=1).max()
