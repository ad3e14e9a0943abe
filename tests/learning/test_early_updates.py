"""Updates and actions that are computed while the environments step."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.train import Training
from tests.helpers import small_training


class TestEarlyUpdates:
    """Updates and actions that are computed beside the step before them."""

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"updates_per_step": 3, "buffer_size": 300},
            {"algorithm": "sac", "normalize_observations": True},
        ],
        ids=str,
    )
    def test_give_what_waiting_gives(self, fields, monkeypatch):
        early, waiting = (small_training(steps=1200, batch_size=8, **fields) for _ in range(2))
        counts = []
        count_early = Training._update_early
        monkeypatch.setattr(
            Training,
            "_update_early",
            lambda self, coming: counts.append(count_early(self, coming)) or counts[-1],
        )
        acted = []

        def forget(training):
            acted.append(training._ahead is not None)
            training._ahead = None

        early.run(1200)
        monkeypatch.setattr(Training, "_update_early", lambda self, coming: 0)
        waiting.run(1200, forget)
        assert {0, fields.get("updates_per_step", 1)} <= set(counts)
        assert True not in acted if "algorithm" in fields else {True, False} == set(acted)
        assert early.updates == waiting.updates
        assert np.array_equal(early.replay.rows, waiting.replay.rows, equal_nan=True)
        pairs = zip(jax.tree.leaves(early.state), jax.tree.leaves(waiting.state), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
        early.close()
        waiting.close()

    def test_a_value_update_does_not_touch_the_policies(self):
        training = small_training(steps=400)
        training.run(400)
        state = training.updater.state
        rows = training.experience.ring.sample(np.random.default_rng(0), (4, 16))
        stepped, _ = training.updater.program.learn(state, rows, None, 1, with_policy=False)

        def touched(before, after):
            return {a is not b for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)}

        assert touched(state.learners.policy, stepped.learners.policy) == {False}
        assert touched(state.guide, stepped.guide) == {False}
        assert touched(state.learners.value, stepped.learners.value) == {True}
        moved, _ = training.updater.program.learn(stepped, rows, None, 2, with_policy=True)
        assert touched(stepped.learners.policy, moved.learners.policy) == {True}
        assert touched(stepped.guide, moved.guide) == {False}
        training.close()
