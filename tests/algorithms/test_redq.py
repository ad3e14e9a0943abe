"""REDQ and DroQ: the subset, the mean and dropout, by hand and by float64 numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import REDQ, SAC, DroQ
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.networks import Dropout, Network, apply_mlp, apply_network, init_mlp, init_model
from p3s.trees import pick
from p3s.types import EnvSpec, Guide
from tests.helpers import leaves, problem_of
from tests.helpers_losses import random_batch

SPEC = EnvSpec.flat(3, 2)
BATCH = random_batch(SPEC, 0)
ESTIMATES = jnp.array([[5.0, 1.0], [2.0, 4.0], [3.0, 3.0]])
"""Of three networks at two states."""


class TestSubset:
    def test_the_smallest_of_two_by_hand(self):
        """Pairs of networks: (0, 1) -> 2, 1;  (0, 2) -> 3, 1;  (1, 2) -> 2, 3."""
        made = REDQ(num_critics=3, subset_size=2)
        found = {tuple(made.combine(ESTIMATES, jax.random.key(n)).tolist()) for n in range(30)}
        assert found == {(2.0, 1.0), (3.0, 1.0), (2.0, 3.0)}

    def test_each_pair_is_as_likely_as_another(self):
        made, values = REDQ(), 10.0 * jnp.arange(10.0)[:, None]
        keys = jax.random.split(jax.random.key(0), 3000)
        smallest = jax.vmap(lambda key: made.combine(values, key)[0])(keys)
        # Network j is the smaller one in 9 - j of 45 pairs.
        shares = [np.mean(np.asarray(smallest) == 10.0 * j) for j in range(10)]
        np.testing.assert_allclose(shares, [(9 - j) / 45 for j in range(10)], atol=0.03)

    def test_all_of_them_is_sac(self):
        key = jax.random.key(0)
        for made in (SAC(num_critics=3), SAC(num_critics=3, subset_size=3)):
            assert made.combine(ESTIMATES, key).tolist() == [2.0, 1.0]

    def test_no_more_than_there_are(self):
        assert "subset_size must be at most num_critics, 2" in problem_of(SAC(subset_size=3))
        assert problem_of(REDQ()) == problem_of(DroQ()) == ""


def test_the_policy_climbs_the_mean_of_all():
    """Policy loss with a temperature near 0: minus the mean over networks and states."""
    assert REDQ().policy_estimate == DroQ().policy_estimate == "mean"
    made = REDQ(hidden_sizes=(4,), initial_temperature=1e-9, num_critics=3)
    learner = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC)
    guide = Guide(learner.policy, jnp.float32(0.0))
    key = jax.random.key(3)
    _, metrics = jax.jit(made.policy_step)(learner, BATCH, guide, key)
    noise = jax.random.normal(key, BATCH.action.shape, jnp.float32)
    outputs = apply_network(learner.policy, BATCH.observation)
    action = np.tanh(outputs[:, :2] + np.exp(outputs[:, 2:]) * noise)
    means = [
        apply_network(pick(learner.value, j), BATCH.observation, action).mean()
        for j in range(made.num_critics)
    ]
    assert float(metrics.loss) == pytest.approx(-np.mean(means), rel=1e-4, abs=1e-5)
    assert made.policy_q(ESTIMATES, key).tolist() == pytest.approx([10 / 3, 8 / 3])


@dataclass(frozen=True, kw_only=True)
class Linear(Network):
    """A network that does not know of dropout."""

    name: ClassVar[str] = "linear_for_dropout"

    def init(self, key, shapes, output_size):
        return jax.random.normal(key, (shapes[0][0], output_size))

    def apply(self, params, *inputs, train):
        return inputs[0] @ params, params


class TestDropout:
    layers = init_mlp(jax.random.key(0), [3], [400], 1, "fan_in")

    def test_units_are_zero_or_scaled_up(self):
        units = jnp.ones((50, 400))
        left = np.asarray(Dropout(0.25, jax.random.key(0)).apply(units, 0))
        assert set(np.unique(left)) == {np.float32(0), np.float32(1 / 0.75)}
        assert (left == 0).mean() == pytest.approx(0.25, abs=0.02)
        # Rows, layers and keys have choices of their own.
        assert not np.array_equal(left[0], left[1])
        for other in (
            Dropout(0.25, jax.random.key(0)).apply(units, 1),
            Dropout(0.25, jax.random.key(1)).apply(units, 0),
        ):
            assert not np.array_equal(left, other)

    def test_after_the_dense_layer_and_before_the_norm(self):
        """dense -> dropout -> layer norm -> relu -> dense, in numpy with the same choice."""
        layers = init_mlp(jax.random.key(0), [3], [6], 1, "fan_in", layer_norm=True)
        dropout, seen = Dropout(0.5, jax.random.key(4)), BATCH.observation
        left = dropout.apply(seen @ layers[0]["weight"] + layers[0]["bias"], 0)
        left = np.asarray(left, np.float64)
        centered = left - left.mean(axis=1, keepdims=True)
        normal = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        expected = np.maximum(normal, 0) @ layers[1]["weight"] + layers[1]["bias"]
        found = apply_mlp(layers, seen, dropout=dropout)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_the_mean_over_choices_is_the_network_without(self):
        """True of a linear network: no activation bends it."""
        layers = [*self.layers[:1], self.layers[1]]
        seen = jnp.ones((1, 3))
        keys = jax.random.split(jax.random.key(0), 2000)
        exact = seen @ layers[0]["weight"] + layers[0]["bias"]
        found = jax.vmap(lambda key: Dropout(0.3, key).apply(exact, 0))(keys).mean(axis=0)
        np.testing.assert_allclose(found, exact, atol=0.1)

    def test_it_changes_targets_losses_and_the_policys_step(self):
        learner = DroQ(hidden_sizes=(16,)).init(jax.random.key(0), SPEC)
        guide = Guide(learner.policy, jnp.float32(0.0))
        found = []
        for rate in (None, 0.5):
            made = DroQ(hidden_sizes=(16,), dropout=rate)
            after, value = jax.jit(made.value_step)(learner, BATCH, jax.random.key(1))
            _, policy = jax.jit(made.policy_step)(learner, BATCH, guide, jax.random.key(1))
            assert all(np.isfinite(leaf).all() for leaf in leaves(after))
            found.append([value.target_mean, value.loss, policy.loss])
        assert all(float(ours) != float(theirs) for ours, theirs in zip(*found, strict=True))

    def test_acting_and_distances_have_none(self):
        made = DroQ(hidden_sizes=(16,), dropout=0.5)
        policy = made.init(jax.random.key(0), SPEC).policy
        assert np.array_equal(made.distance_between(policy, policy, BATCH.observation), np.zeros(7))
        plain = DroQ(hidden_sizes=(16,), dropout=None)
        for explore in (False, True):
            ours, theirs = (
                each.act(policy, BATCH.observation, jax.random.key(0), explore=explore)
                for each in (made, plain)
            )
            assert np.array_equal(ours, theirs)

    def test_a_network_without_it_is_refused(self):
        network = Linear(
            hidden_sizes=(), activation="relu", layer_norm=False, initialization="fan_in"
        )
        model = init_model(network, jax.random.key(0), [(3,)], 1)
        with pytest.raises(UserError, match="linear_for_dropout has no dropout: leave --dropout"):
            apply_network(model, BATCH.observation, dropout=Dropout(0.5, jax.random.key(0)))


def test_only_the_values_have_layer_norm():
    learner = DroQ(hidden_sizes=(4,)).init(jax.random.key(0), SPEC)
    assert "scale" in learner.value.params[0]
    assert "scale" not in learner.policy.params[0]


@pytest.mark.parametrize("kind", [REDQ, DroQ])
def test_first_weights_are_bounded_by_observation_and_action_together(kind):
    """Xavier's bound for 3 + 2 inputs and 995 units is sqrt(6/1000); for 2 inputs, sqrt(6/997)."""
    assert (
        resolve("Hopper-v5", "p3s", kind.name, "authors").algorithm.initialization == "xavier_joint"
    )
    learner = kind(hidden_sizes=(995,)).init(jax.random.key(0), SPEC)
    weights = learner.value.params[0]["weight"]
    assert weights.shape[1:] == (5, 995)
    for inputs in (weights[:, :3], weights[:, 3:]):
        assert float(jnp.abs(inputs).max()) == pytest.approx(np.sqrt(6 / 1000), rel=1e-3)
        assert float(jnp.abs(inputs).max()) <= np.sqrt(6 / 1000) * 1.000001
