"""Any number of value networks, combined by one function that a subclass may replace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import SAC, TD3
from p3s.algorithms.parts.deterministic import target_values
from p3s.algorithms.sac_discrete import SACDiscrete
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers import leaves, problem_of
from tests.helpers_losses import SPECS, numpy_mlp, random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
KEY = jax.random.key(4)


def numpy_ahead(learner) -> np.ndarray:
    """Q'_j(s', pi'(s')) of every target network of TD3, without noise, (networks, batch)."""
    action = np.tanh(numpy_mlp(learner.targets["policy"], BATCH.next_observation))
    inputs = np.concatenate([BATCH.next_observation, action], axis=1)
    count = len(jax.tree.leaves(learner.value)[0])
    return np.stack(
        [numpy_mlp(pick(learner.targets["value"], j), inputs)[:, 0] for j in range(count)]
    )


def target_mean(algorithm, learner, key=KEY) -> float:
    return float(jax.jit(algorithm.value_step)(learner, BATCH, key)[1].target_mean)


@pytest.mark.parametrize("num_critics", [1, 3, 5])
class TestNumber:
    @pytest.mark.parametrize("algorithm", [TD3, SAC, SACDiscrete])
    def test_one_step(self, algorithm, num_critics):
        made = algorithm(hidden_sizes=(4,), num_critics=num_critics)
        spec = SPECS[made.actions]
        batch = random_batch(spec, 0)
        learner = made.init(jax.random.key(0), spec)
        assert {leaf.shape[0] for leaf in leaves((learner.value, learner.targets["value"]))} == {
            num_critics
        }

        @jax.jit
        def step(learner):
            learner, first = made.value_step(learner, batch, KEY)
            guide = Guide(learner.policy, jnp.float32(0.0))
            learner, second = made.policy_step(learner, batch, guide, KEY)
            return learner, (first, second)

        after, metrics = step(learner)
        assert leaves(metrics)
        assert all(np.isfinite(value) for value in leaves(metrics))
        assert jax.tree.structure(after) == jax.tree.structure(learner)
        before, moved = (leaves(each.value) for each in (learner, after))
        for old, new in zip(before, moved, strict=True):
            # Every network of the ensemble has learned.
            assert (old != new).reshape(num_critics, -1).any(axis=1).all()

    def test_the_target_is_the_smallest(self, num_critics):
        algorithm = TD3(hidden_sizes=(4,), num_critics=num_critics, target_noise=0.0)
        learner = algorithm.init(jax.random.key(0), SPEC)
        ahead = numpy_ahead(learner)
        assert ahead.shape == (num_critics, 7)
        expected = BATCH.reward + BATCH.discount * 0.99 * ahead.min(axis=0)
        assert target_mean(algorithm, learner) == pytest.approx(expected.mean(), rel=1e-4)


@dataclass(frozen=True, kw_only=True)
class MeanTD3(TD3):
    """TD3 whose target is the mean of all estimates."""

    name: ClassVar[str] = "mean_td3"

    def combine(self, values, key):
        return values.mean(axis=0)


@dataclass(frozen=True, kw_only=True)
class SubsetTD3(TD3):
    """TD3 whose target is the smaller of two random estimates, as in REDQ."""

    name: ClassVar[str] = "subset_td3"

    def combine(self, values, key):
        return jax.random.permutation(key, values)[:2].min(axis=0)


class TestCombine:
    fields: ClassVar[dict] = {"hidden_sizes": (4,), "num_critics": 5, "target_noise": 0.0}

    def test_the_mean(self):
        algorithm = MeanTD3(**self.fields)
        learner = algorithm.init(jax.random.key(0), SPEC)
        expected = BATCH.reward + BATCH.discount * 0.99 * numpy_ahead(learner).mean(axis=0)
        assert target_mean(algorithm, learner) == pytest.approx(expected.mean(), rel=1e-4)

    def test_a_random_subset_follows_from_the_key(self):
        algorithm = SubsetTD3(**self.fields)
        learner = algorithm.init(jax.random.key(0), SPEC)
        ahead = numpy_ahead(learner)
        allowed = [
            (BATCH.reward + BATCH.discount * 0.99 * ahead[[i, j]].min(axis=0)).mean()
            for i in range(5)
            for j in range(i)
        ]
        found = [target_mean(algorithm, learner, jax.random.key(seed)) for seed in range(8)]
        for value in found:
            assert np.isclose(value, allowed, rtol=1e-4).any()
        assert len({round(value, 4) for value in found}) > 1
        assert found[0] == target_mean(algorithm, learner, jax.random.key(0))

    @pytest.mark.parametrize("base", [SAC, SACDiscrete])
    def test_policy_and_target_of_sac(self, base):
        """Both combine by the same function: all estimates replaced by 100."""

        @dataclass(frozen=True, kw_only=True)
        class Constant(base):
            def combine(self, values, key):
                return jnp.full_like(values[0], 100.0)

        made = Constant(hidden_sizes=(4,), initial_temperature=1e-6, discount_factor=0.5)
        spec = SPECS[made.actions]
        learner, batch = made.init(jax.random.key(0), spec), random_batch(spec, 0)
        _, metrics = made.value_step(learner, batch, KEY)
        expected = np.mean(batch.reward + batch.discount * 0.5 * 100)
        assert float(metrics.target_mean) == pytest.approx(expected, rel=1e-4)
        guide = Guide(learner.policy, jnp.float32(0.0))
        _, metrics = made.policy_step(learner, batch, guide, KEY)
        assert float(metrics.loss) == pytest.approx(-100, rel=1e-4)


def test_target_values_are_those_of_every_network():
    learner = TD3(hidden_sizes=(4,), num_critics=3).init(jax.random.key(0), SPEC)
    found = target_values(
        learner.targets["policy"], learner.targets["value"], BATCH, np.zeros((7, 2), np.float32)
    )
    np.testing.assert_allclose(found, numpy_ahead(learner), rtol=1e-4, atol=1e-5)


def test_at_least_one():
    assert "num_critics must be between 1 and 100" in problem_of(TD3(num_critics=0))
