"""Trainings of each algorithm on a real small task, alone; minutes (make test-slow)."""

from __future__ import annotations

import pytest

import p3s

TASKS = [
    ("ddpg", "Pendulum-v1", 10_000, -250, {"hidden_sizes": (64, 64)}),
    ("sac", "Pendulum-v1", 10_000, -250, {"hidden_sizes": (64, 64), "learning_rate": 1e-3}),
    ("dqn", "CartPole-v1", 30_000, 400, {}),
    (
        "sac_discrete",
        "CartPole-v1",
        24_000,
        400,
        {"hidden_sizes": (64, 64), "learning_rate": 1e-3, "target_rate": 0.02},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "env", "steps", "least", "fields"), TASKS)
def test_learns_alone(algorithm, env, steps, least, fields):
    population = p3s.Population(
        env, scheme="single", algorithm=algorithm, evaluation_period=0, **fields
    )
    population.learn(steps, progress_bar=False)
    mean = p3s.evaluate(population, episodes=20).mean()
    print(f"{algorithm} on {env}: {mean:.1f} after {steps} steps")
    assert mean > least


ON_POLICY_TASKS = [
    ("ppo", 60_000, {}),
    ("acktr", 80_000, {"rollout_steps": 1000}),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("algorithm", "steps", "fields"), ON_POLICY_TASKS)
def test_learns_on_policy(algorithm, steps, fields, seed):
    """The stochastic policy, which the paper judges, and the noiseless one."""
    population = p3s.Population(
        "InvertedPendulum-v5",
        scheme="single",
        algorithm=algorithm,
        seed=seed,
        evaluation_period=0,
        **fields,
    )
    population.learn(steps, progress_bar=False)
    for deterministic in (False, True):
        mean = p3s.evaluate(population, episodes=20, deterministic=deterministic).mean()
        kind = "noiseless" if deterministic else "stochastic"
        print(f"{algorithm}, seed {seed}, {kind}: {mean:.1f} after {steps} steps")
        assert mean > 900
