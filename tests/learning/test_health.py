"""Signs that learning goes wrong, each said once."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.runs import opening
from p3s.train import Training
from tests.helpers import small_config, small_training


def test_a_healthy_run_says_nothing(capsys):
    small_training(evaluation_period=0, updates_per_step=4).run(1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("beta", "bound"), [(64.0, "upper"), (1 / 64, "lower")])
def test_beta_at_a_bound(capsys, beta, bound):
    training = small_training(evaluation_period=0, beta_limit=50.0)
    for now in (1.0, 0.0, beta, beta):
        training.health.see_review({"beta": now})
    assert capsys.readouterr().err.count(f"at its {bound} bound (--beta-limit 50)") == 1


def test_beta_of_a_run(capsys):
    small_training(evaluation_period=0, beta=1e-4, beta_limit=50.0).run(200)
    assert "at its lower bound" in capsys.readouterr().err


def unsound(capsys, shards: int | None, part: str, spoil) -> str:
    """What a run says whose learner 2 was spoiled in this part of its state."""
    fields = {"updates_per_step": 4, "evaluation_period": 0, "shards": shards}
    config = small_config(**fields, **({"exchange_period": 5} if shards else {}))
    training = Training(config, opening.env_maker(config))
    training.run(200)
    snapshot = training.snapshot()
    for name, leaf in snapshot["state"].items():
        if name.startswith(f"learners/{part}/"):
            leaf = leaf.copy()
            leaf[2] = spoil(leaf[2])
            snapshot["state"][name] = leaf
    training.resume(snapshot)
    training.run(2000)
    training.close()
    return capsys.readouterr().err


@pytest.mark.parametrize("shards", [None, 2])
def test_a_saturated_policy(capsys, shards):
    """Weights so large that the derivative of tanh is zero to the bit."""
    said = unsound(capsys, shards, "policy", lambda leaf: leaf + np.float32(1e6))
    assert said.count("the policy of learner 2 has not moved") == 1
    assert "learner 0" not in said


def test_a_policy_that_is_a_value_function_too(capsys):
    """DQN has one loss. Steps this small move no weight by a bit."""
    fields = {"algorithm": "dqn", "learning_rate": 1e-30, "updates_per_step": 4}
    small_training("CartPole-v1", evaluation_period=0, **fields).run(1000)
    assert capsys.readouterr().err.count("the policy of learner 0 has not moved") == 1


@pytest.mark.parametrize("shards", [None, 2])
def test_exploding_values(capsys, shards):
    said = unsound(capsys, shards, "targets/value", lambda leaf: leaf * np.float32(1e3))
    assert said.count("the values of learner 2 explode") == 1
    assert "learner 1" not in said
