"""Every off-policy algorithm learns from returns over several steps."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.algorithms.off_policy import OffPolicy
from p3s.types import Guide
from tests.helpers import leaves
from tests.helpers_losses import SPECS, random_batch

OFF_POLICY = [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)]


def several(batch):
    """The same steps, as returns over three steps of which one was taken."""
    nothing = np.zeros((len(batch.reward), 2), np.float32)
    return batch._replace(
        reward=np.hstack([batch.reward[:, None], nothing]),
        discount=np.hstack([batch.discount[:, None], nothing]),
    )


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_steps_fit(algorithm):
    made = ALGORITHMS[algorithm](hidden_sizes=(4,))
    spec = SPECS[made.actions]
    batch = several(random_batch(spec, 0))
    learner = jax.eval_shape(partial(made.init, spec=spec), jax.random.key(0))

    def update(learner, key):
        valued, _ = made.value_step(learner, batch, key)
        return made.policy_step(valued, batch, Guide(learner.policy, np.float32(0.5)), key)[0]

    after = jax.eval_shape(update, learner, jax.random.key(1))
    assert jax.tree.structure(after) == jax.tree.structure(learner)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(each)] for each in (learner, after)]
    assert shapes[0] == shapes[1]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_one_step_of_three_is_one_step(algorithm):
    made = ALGORITHMS[algorithm](hidden_sizes=(4,))
    spec = SPECS[made.actions]
    batch, key = random_batch(spec, 0), jax.random.key(2)
    learner = jax.jit(made.init, static_argnums=1)(jax.random.key(0), spec)
    guide = Guide(learner.policy, np.float32(0.0))

    @jax.jit
    def update(learner, batch):
        learner, _ = made.value_step(learner, batch, key)
        return made.policy_step(learner, batch, guide, key)[0]

    ours, theirs = (leaves(update(learner, each)) for each in (batch, several(batch)))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
