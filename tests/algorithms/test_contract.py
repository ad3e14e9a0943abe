"""Every off-policy algorithm of the registry keeps the contract, trains, resumes, and is saved.

The single checks are in `p3s.testing`; test_broken.py shows that each of them can fail.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.errors import UserError
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.testing import ALGORITHM_CHECKS, AlgorithmCase, small_algorithm
from p3s.testing.steps import check_loss_terms
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
from tests.helpers_losses import SPECS

SMALL_ENV = {"continuous": "Pendulum-v1", "discrete": "CartPole-v1"}
STEPS = 300
"""The others: test_on_policy.py."""


def env_of(algorithm: str) -> str:
    return SMALL_ENV[ALGORITHMS[algorithm].actions]


def make(algorithm: str, **fields) -> Algorithm:
    return ALGORITHMS[algorithm](hidden_sizes=sizes_for(algorithm), batch_size=7, **fields)


GIVEN = {
    "dropout": 0.1,
    "exploration_noise_kind": "ornstein_uhlenbeck",
    "initialization": "fan_in",
    "layer_norm": False,
    "policy_estimate": "as_targets",
    "policy_learning_rate": 1e-3,
    "target_period": 2,
}
"""Values under which every other field does something within three updates."""


def case_of(name: str) -> AlgorithmCase:
    known = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    small = small_algorithm(name, **{field: GIVEN[field] for field in known & GIVEN.keys()})
    return AlgorithmCase(small, SPECS[small.actions])


@pytest.fixture(scope="module", params=OFF_POLICY)
def case(request) -> AlgorithmCase:
    """What is compiled of an algorithm serves all checks."""
    return case_of(request.param)


@pytest.mark.parametrize("check", ALGORITHM_CHECKS, ids=lambda check: check.__name__)
def test_keeps(case, check):
    check(case)


@pytest.mark.parametrize("name", [name for name, made in ALGORITHMS.items() if not made.on_policy])
def test_it_says_whether_it_takes_further_loss_terms(name):
    check_loss_terms(case_of(name))


@pytest.mark.parametrize("algorithm", OFF_POLICY)
class TestContract:
    def test_trains_and_repeats_itself(self, algorithm):
        def trained():
            fields = {"algorithm": algorithm, "num_learners": 2, "recent_episodes": 1}
            training = small_training(env_of(algorithm), seed=3, **fields)
            start = [leaf.copy() for leaf in leaves(training.crew.updater.state.learners.policy)]
            training.run(STEPS)
            return training, start

        (first, start), (again, _) = trained(), trained()
        assert first.counters.updates == (STEPS // 2 - 19) * first.scheme.num_updates
        for leaf in leaves(first.crew.updater.state.learners):
            assert leaf.shape[0] == 2
            assert leaf.dtype in (np.float32, np.int32)
            assert np.isfinite(leaf).all()
        moved = zip(leaves(first.crew.updater.state.learners.policy), start, strict=True)
        assert not any(np.array_equal(ours, theirs) for ours, theirs in moved)
        pairs = zip(leaves(first.crew.updater.state), leaves(again.crew.updater.state), strict=True)
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
