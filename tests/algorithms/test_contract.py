"""Every off-policy algorithm of the registry: contract, determinism, resume, stacking, files."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.errors import UserError
from p3s.learning.learners import init_learners, update_learners
from p3s.policy import Policy
from p3s.policy_onnx import export_onnx
from p3s.trees import pick
from p3s.types import Guide
from tests.helpers import (
    OFF_POLICY,
    assert_file_and_export,
    leaves,
    record,
    resume,
    run,
    sizes_for,
    small_training,
)
from tests.helpers_losses import SPECS, random_batch

SMALL_ENV = {"continuous": "Pendulum-v1", "discrete": "CartPole-v1"}
STEPS = 300
"""The others: test_on_policy.py."""


def env_of(algorithm: str) -> str:
    return SMALL_ENV[ALGORITHMS[algorithm].actions]


def make(algorithm: str, **fields) -> Algorithm:
    return ALGORITHMS[algorithm](hidden_sizes=sizes_for(algorithm), batch_size=7, **fields)


@pytest.mark.parametrize(
    "algorithm", [name for name, algorithm in ALGORITHMS.items() if not algorithm.on_policy]
)
def test_it_says_whether_it_takes_further_loss_terms(algorithm):
    made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
    learner, asked = made.init(jax.random.key(0), spec), []

    def term(policy):
        asked.append(policy)
        return jnp.float32(0.0)

    guide = Guide(learner.policy, jnp.float32(0.0), term)
    jax.eval_shape(
        lambda: made.policy_step(learner, random_batch(spec, 0), guide, jax.random.key(1))
    )
    assert made.takes_loss_terms == bool(asked)


@pytest.mark.parametrize("algorithm", OFF_POLICY)
class TestContract:
    def test_trains_and_repeats_itself(self, algorithm):
        def trained():
            fields = {"algorithm": algorithm, "num_learners": 2, "recent_episodes": 1}
            training = small_training(env_of(algorithm), seed=3, **fields)
            start = [leaf.copy() for leaf in leaves(training.updater.state.learners.policy)]
            training.run(STEPS)
            return training, start

        (first, start), (again, _) = trained(), trained()
        assert first.counters.updates == (STEPS // 2 - 19) * first.scheme.num_updates
        for leaf in leaves(first.updater.state.learners):
            assert leaf.shape[0] == 2
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        moved = zip(leaves(first.updater.state.learners.policy), start, strict=True)
        assert not any(np.array_equal(ours, theirs) for ours, theirs in moved)
        pairs = zip(leaves(first.updater.state), leaves(again.updater.state), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
        assert first.evaluated[-1]["learner_returns"] == again.evaluated[-1]["learner_returns"]

    def test_guided_run_resumes_to_the_bit(self, algorithm, tmp_path):
        fields = {"env": env_of(algorithm), "scheme": "p3s", "algorithm": algorithm}
        fields |= {"num_learners": 2, "recent_episodes": 1}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=450, **fields)
        resume(tmp_path / "killed")
        whole = record(tmp_path / "whole")
        assert whole == record(tmp_path / "killed")
        assert whole["lineage"][-1]["best"] is not None
        assert whole["lineage"][-1]["spread"] > 0
        assert whole["metrics"][-1]["learners"]["guide_distance"][0] >= 0

    def test_a_value_step_leaves_the_policy(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        learner = jax.jit(made.init, static_argnums=1)(jax.random.key(0), spec)
        step = jax.jit(made.value_step)
        stepped, _ = step(learner, random_batch(spec, 0), jax.random.key(1))
        pairs = zip(leaves(made.policy_of(learner)), leaves(made.policy_of(stepped)), strict=True)
        assert all(np.array_equal(before, after) for before, after in pairs)

    def test_stacked_update_equals_single_updates(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        learners = init_learners(made, jax.random.key(0), spec, 3, identical=False)
        rows = [random_batch(spec, index) for index in range(3)]
        batches = jax.tree.map(lambda *parts: np.stack(parts), *rows)
        guide = Guide(pick(learners.policy, 1), jnp.array([0.5, 0.0, 2.0], jnp.float32))
        key = jax.random.key(4)
        stacked, metrics = jax.jit(partial(update_learners, made, with_policy=True))(
            learners, batches, guide, key, jnp.arange(3)
        )

        @jax.jit
        def update(learner, batch, weight, learner_key):
            value_key, policy_key = jax.random.split(learner_key)
            learner, first = made.value_step(learner, batch, value_key)
            pull = Guide(guide.policy, weight)
            learner, second = made.policy_step(learner, batch, pull, policy_key)
            return learner, {**first, **second}

        for index in range(3):
            learner, ours = update(
                pick(learners, index), rows[index], guide.weight[index],
                jax.random.fold_in(key, index),
            )  # fmt: skip
            for one, other in zip(leaves(pick(stacked, index)), leaves(learner), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)
            for name, value in ours.items():
                assert float(metrics[name][index]) == pytest.approx(
                    float(value), rel=1e-4, abs=1e-5
                )

    def test_distance_and_actions(self, algorithm):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        policy, other = (made.init(jax.random.key(seed), spec).policy for seed in (1, 2))
        observation = random_batch(spec, 0).observation
        same = made.distance_between(policy, policy, observation)
        np.testing.assert_allclose(same, np.zeros(7), atol=1e-6)
        apart = made.distance_between(policy, other, observation)
        assert apart.shape == (7,)
        assert float(apart.min()) > 0
        towards = jax.tree.map(lambda ours, theirs: ours + 0.1 * (theirs - ours), policy, other)
        assert (made.distance_between(policy, towards, observation) < apart).all()
        for explore in (False, True):
            action = made.act(policy, observation, jax.random.key(0), explore=explore)
            single = made.act(policy, observation[0], jax.random.key(0), explore=explore)
            if spec.discrete:
                assert (action.shape, single.shape) == ((7,), ())
                assert action.dtype == np.int32
            else:
                assert (action.shape, single.shape) == ((7, 2), (2,))
                assert float(jnp.abs(action).max()) <= 1

    def test_saved_loaded_and_exported(self, algorithm, tmp_path):
        made, spec = make(algorithm), SPECS[ALGORITHMS[algorithm].actions]
        about = {"action_start": 5} if spec.discrete else {
            "action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2],
        }  # fmt: skip
        policy = Policy(
            made, jax.device_get(made.init(jax.random.key(0), spec).policy), spec, about
        )
        assert_file_and_export(policy, tmp_path)


def test_wrong_kind_of_actions():
    with pytest.raises(UserError, match="td3 cannot learn: choose algorithm dqn or sac_discrete"):
        small_training("CartPole-v1", algorithm="td3")
    with pytest.raises(UserError, match="dqn cannot learn: choose algorithm td3 or ddpg or sac"):
        small_training("Pendulum-v1", algorithm="dqn")


def test_no_export_without_layers(tmp_path):
    class Strange(ALGORITHMS["td3"]):
        def noiseless_layers(self, policy, spec):
            return None

    made, spec = Strange(hidden_sizes=(4,)), SPECS["continuous"]
    with pytest.raises(UserError, match="cannot be exported"):
        export_onnx(Policy(made, made.init(jax.random.key(0), spec).policy, spec, {}), tmp_path)
