"""Resetting: what is copied from the best, and its periods."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes import Resetting
from p3s.types import EnvSpec

DRAW = np.random.default_rng(0)
TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)


class TestResetting:
    scheme = Resetting(algorithm=TINY, num_learners=3)

    @staticmethod
    def copied(before, after) -> bool:
        """Whether everything is the best's now; else it must be as it was."""
        if jax.tree.all(jax.tree.map(lambda leaf, old: (leaf == old[1]).all(), after, before)):
            return True
        assert jax.tree.all(jax.tree.map(np.array_equal, after, before))
        return False

    @pytest.mark.parametrize(
        ("what", "following"),
        [("policy", set()), ("policy_and_target", {"targets"}),
         ("policy_target_and_moments", {"targets", "optimizers"})],
    )  # fmt: skip
    def test_copies_exactly_what_is_named(self, what, following):
        scheme = dataclasses.replace(self.scheme, copied=what)
        state = scheme.init(jax.random.key(0), SPEC)
        # Make all learners differ in every leaf, zeros included.
        before = jax.tree.map(
            lambda leaf: leaf + np.arange(3).reshape(3, *[1] * (leaf.ndim - 1)), state.learners
        )
        returns, observations = np.array([[0.0], [2.0], [1.0]]), np.zeros((5, 2), np.float32)
        after, review = scheme.review(state._replace(learners=before), returns, observations, DRAW)
        assert review == {"best": 1, "copied_to": [0, 2]}
        fresh = after.learners
        assert self.copied(before.policy, fresh.policy)
        assert not self.copied(before.value, fresh.value)
        for part in ("targets", "optimizers"):
            ours, theirs = getattr(before, part), getattr(fresh, part)
            assert ours.keys() == theirs.keys() == {"policy", "value"}
            assert self.copied(ours["policy"], theirs["policy"]) is (part in following)
            assert not self.copied(ours["value"], theirs["value"])

    def test_nobody_to_copy_from(self):
        state = self.scheme.init(jax.random.key(0), SPEC)
        returns = np.full((3, 1), np.nan)
        after, review = self.scheme.review(state, returns, np.zeros((5, 2), np.float32), DRAW)
        assert review == {"best": None, "copied_to": []}
        assert after is state

    def test_appendix_i(self):
        for env, period in (("Ant-v5", 2000), ("Hopper-v5", 5000), ("Delayed Ant-v1", 10_000),
                            ("Delayed Walker2d-v1", 20_000), ("Pendulum-v1", 5000)):  # fmt: skip
            assert resolve(env, "re").scheme.review_period == period
