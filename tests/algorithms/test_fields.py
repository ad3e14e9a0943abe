"""No hyper-parameter of an off-policy algorithm is dead, and bad values are refused."""

from __future__ import annotations

import dataclasses
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.networks import Network, features
from p3s.plugins import register
from p3s.types import EnvSpec, Guide
from tests.helpers import leaves, off_policy, problem_of, sizes_for
from tests.helpers_losses import SPECS, random_batch

"""The others: test_on_policy.py."""


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Network):
    """One matrix, without a bias or hidden layers."""

    name: ClassVar[str] = "test_linear"

    def init(self, key, shapes, output_size):
        size = sum(prod(shape) for shape in shapes)
        return {"matrix": jax.random.normal(key, (size, output_size)) / 4}

    def apply(self, params, *inputs, train):
        return features(*inputs) @ params["matrix"], params


def make(algorithm: str, **fields) -> Algorithm:
    return ALGORITHMS[algorithm](hidden_sizes=sizes_for(algorithm), batch_size=7, **fields)


@pytest.mark.parametrize("algorithm", off_policy("crossq"))
class TestFields:
    """A hyper-parameter changes something; a number may be a traced one, another per learner."""

    shaping = {  # noqa: RUF012
        "hidden_sizes": (16, 14), "initialization": "xavier", "targets_start": "independent",
        "distance_reduction": "mean", "double": False, "dueling": True,
        "activation": "tanh", "layer_norm": True, "network": "test_linear",
        "num_value_actions": 8, "num_particles": 8, "num_values": 3,
        "exploration_noise_kind": "gaussian",
        "policy_hidden_sizes": (16, 14), "policy_activation": "tanh", "policy_layer_norm": True,
        "precision": "bfloat16", "subset_size": 1, "policy_estimate": "mean",
        "num_quantiles": 5, "num_dropped": 0, "num_bins": 51, "distance": "action",
    }  # fmt: skip
    only_in_updates = (
        "double", "num_value_actions", "num_particles", "subset_size", "policy_estimate",
        "num_dropped",
    )  # fmt: skip
    elsewhere = (
        "batch_size", "policy_period", "n_step", "normalize_observations", "normalize_rewards",
        "noise_repeat",
    )  # fmt: skip
    """Used by the loop, not by the algorithm: ../schemes/test_fields.py, test_flashsac.py."""

    def numbers(self, made: Algorithm) -> dict[str, float]:
        values = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        return {
            name: value
            for name, value in values.items()
            if name not in (*self.elsewhere, *self.shaping)
        }

    def history(self, made: Algorithm, numbers: dict):
        """What three updates leave behind, the distance and an action, for traced numbers."""
        spec = SPECS[made.actions]
        traced = dataclasses.replace(made, **numbers)
        learner = traced.init(jax.random.key(0), spec)
        guide = jax.tree.map(lambda leaf: 0.5 * leaf, learner.policy)

        def update(learner, inputs):
            batch, index = inputs
            learner, _ = traced.value_step(learner, batch, jax.random.key(index))
            pull = Guide(guide, jnp.float32(0.5))
            return traced.policy_step(learner, batch, pull, jax.random.key(9 + index))[0], None

        # Rewards are large, so that clips and thresholds are reached.
        batches = [random_batch(spec, index) for index in range(3)]
        batches = [batch._replace(reward=3 * batch.reward) for batch in batches]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *batches)
        learner, _ = jax.lax.scan(update, learner, (stacked, jnp.arange(3)))
        seen = random_batch(spec, 7, 64).observation
        action = traced.act(learner.policy, seen, jax.random.key(2), explore=True)
        return learner, traced.distance_between(learner.policy, guide, seen), action

    def test_none_is_dead(self, algorithm):
        # Three updates are too few for the default period of hard targets; None is no number. What
        # forms of an algorithm set is set back.
        given = {
            "target_period": 2,
            "learning_rate_steps": 100,
            "policy_learning_rate": 1e-3,
            "dropout": 0.1,
            "layer_norm": False,
            "policy_estimate": "as_targets",
            "initialization": "fan_in",
            "exploration_noise_kind": "ornstein_uhlenbeck",
        }
        known = {field.name for field in dataclasses.fields(ALGORITHMS[algorithm])}
        made = make(algorithm, **{name: given[name] for name in known & given.keys()})
        numbers = self.numbers(made)
        spec = SPECS[made.actions]
        spaced = jax.jit(jax.vmap(lambda numbers: self.history(made, numbers)))
        changed = [dict(numbers)] + [
            {**numbers, name: self.other(name, value)} for name, value in numbers.items()
        ]
        stacked = {name: jnp.array([row[name] for row in changed]) for name in numbers}
        histories = spaced(stacked)
        for index, name in enumerate(numbers, start=1):
            same = all(np.array_equal(leaf[0], leaf[index]) for leaf in leaves(histories))
            assert not same, name
        for name, value in self.shaping.items():
            if not hasattr(made, name):
                continue
            if name in ("hidden_sizes", "policy_hidden_sizes"):
                value = sizes_for(algorithm, value[::-1])
            other = dataclasses.replace(made, **{name: value})
            updated = name in self.only_in_updates
            ours, theirs = (self.shape_of(each, spec, updated) for each in (made, other))
            assert ours != theirs, name

    def other(self, name: str, value: float) -> float:
        if name in ("target_period", "epsilon_updates", "learning_rate_steps"):
            return 3
        return value * 0.3 if value else 0.5

    def shape_of(self, made: Algorithm, spec: EnvSpec, updated: bool):
        """What fields that decide the form of things can change; an update only where needed."""
        learner, other = (made.init(jax.random.key(seed), spec) for seed in (0, 1))
        observation = random_batch(spec, 0).observation
        action = made.act(learner.policy, observation, jax.random.key(2), explore=True)
        parts = [learner, made.distance_between(learner.policy, other.policy, observation), action]
        if updated:
            mixed = other._replace(policy=learner.policy)
            batch = random_batch(spec, 0)
            guide = Guide(other.policy, jnp.float32(0.0))
            value, _ = jax.jit(made.value_step)(mixed, batch, jax.random.key(0))
            parts.append(jax.jit(made.policy_step)(value, batch, guide, jax.random.key(0)))
        return [leaf.tobytes() for leaf in leaves(parts)]

    def test_bad_values(self, algorithm):
        for fields, message in (
            ({"discount_factor": 1.5}, "discount_factor must be between 0 and 1"),
            ({"adam_momentum": 1.0}, "adam_momentum must be at least 0 and below 1"),
            ({"learning_rate": 0.0}, "learning_rate must be above 0"),
            ({"hidden_sizes": (0,)}, "hidden_sizes must be at least 1"),
            ({"batch_size": 0}, "batch_size must be at least 1"),
            ({"activation": "step"}, 'activation must be "relu" or "tanh"'),
        ):
            assert message in problem_of(ALGORITHMS[algorithm](**fields))
        assert problem_of(ALGORITHMS[algorithm]()) == ""
