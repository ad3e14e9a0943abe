"""Signs that learning goes wrong, each said once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from p3s.trees import merge, trained
from tests.helpers import small_training


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


def test_a_saturated_policy(capsys):
    """Weights so large that the derivative of tanh is zero to the bit."""
    training = small_training(evaluation_period=0, updates_per_step=4)
    training.run(100)
    learners = training.updater.state.learners
    wide = jax.tree.map(lambda leaf: leaf.at[1].add(1e6), trained(learners.policy))
    learners = training.scheme.algorithm.with_policy(learners, merge(wide, learners.policy))
    training.updater.state = training.updater.state._replace(learners=learners)
    training.run(2000)
    said = capsys.readouterr().err
    assert said.count("the policy of learner 1 has not moved") == 1
    assert "learner 0" not in said


def test_a_policy_that_is_a_value_function_too(capsys):
    """DQN has one loss. Steps this small move no weight by a bit."""
    fields = {"algorithm": "dqn", "learning_rate": 1e-30, "updates_per_step": 4}
    small_training("CartPole-v1", evaluation_period=0, **fields).run(1000)
    assert capsys.readouterr().err.count("the policy of learner 0 has not moved") == 1


def test_exploding_values(capsys):
    training = small_training(evaluation_period=0)
    training.run(200)
    learners = training.updater.state.learners
    huge = jax.tree.map(
        lambda leaf: leaf.at[2].multiply(jnp.float32(1e3)), learners.targets["value"]
    )
    targets = {**learners.targets, "value": huge}
    training.updater.state = training.updater.state._replace(
        learners=learners._replace(targets=targets)
    )
    training.run(400)
    said = capsys.readouterr().err
    assert said.count("the values of learner 2 explode") == 1
    assert "learner 1" not in said
