"""Distributed: one policy acts in every copy."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from p3s.algorithms import ALGORITHMS
from tests.helpers import leaves, trained

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))


class TestDistributed:
    def test_one_policy_acts_everywhere_and_learns_n_times(self):
        training = trained(400, scheme="drl")
        assert leaves(training.crew.updater.state.learners)[0].shape[0] == 1
        assert training.counters.total_updates == 4 * (100 - 19)
        assert training.crew.environments.observations.shape[0] == 4
        acting = training.scheme.acting(training.crew.updater.state)
        same_place = np.zeros((4, 4), np.float32)
        quiet = dataclasses.replace(
            training.scheme, algorithm=dataclasses.replace(TINY, exploration_noise=0.0)
        )
        actions = np.asarray(quiet.act(acting, same_place, jax.random.key(0), np.int32(1)))
        np.testing.assert_allclose(actions, actions[:1].repeat(4, axis=0), atol=1e-6)
        noisy = np.asarray(training.scheme.act(acting, same_place, jax.random.key(0), np.int32(1)))
        assert len(np.unique(noisy)) == 4
