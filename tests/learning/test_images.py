"""Learning from pixels: the catch game, which needs nothing to be downloaded."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import p3s
from p3s import Population
from tests.probe_worlds import Catch

SMALL = {
    "preset": "paper",
    "hidden_sizes": (16,),
    "batch_size": 4,
    "initial_steps": 12,
    "review_period": 15,
    "buffer_size": 50,
    "evaluation_period": 0,
    "num_learners": 2,
}


@pytest.mark.parametrize(
    ("algorithm", "discrete"),
    [
        ("dqn", True),
        pytest.param("td3", False, marks=pytest.mark.slow),
        pytest.param("sac", False, marks=pytest.mark.slow),
        pytest.param("sac_discrete", True, marks=pytest.mark.slow),
    ],
)
def test_a_few_updates(algorithm, discrete):
    population = Population(partial(Catch, discrete), algorithm=algorithm, **SMALL)
    training = population.training
    start = training.crew.updater.snapshot()
    # Stopped before its end, where a row of metrics would be written.
    population.learn(1000, lambda now: now.num_steps < 2 * 20, progress_bar=False)
    assert training.counters.updates == 20 - 11
    training.crew.updater.settle()
    losses = training.crew.updater.metrics.means()
    assert "value_loss" in losses
    assert all(np.isfinite(values).all() for values in losses.values())
    moved = training.crew.updater.snapshot()
    encoders = [name for name in moved if "encoder" in name and name.startswith("learners/policy")]
    assert len(encoders) == 3 * 2  # weights and biases of three convolutions
    assert all(not np.array_equal(moved[name], start[name]) for name in encoders)


@pytest.mark.slow
def test_dqn_learns_to_catch():
    """Chance has a mean return of about -0.6, and catching every ball gives 1."""
    population = Population(
        Catch, scheme="single", algorithm="dqn", seed=0, hidden_sizes=(64,), batch_size=64,
        initial_steps=500, buffer_size=20_000, evaluation_period=1000, evaluation_episodes=40,
    )  # fmt: skip

    def not_yet(population: Population) -> bool:
        return not population.evaluations or population.evaluations[-1]["score"] < 0.9

    assert p3s.evaluate(population, episodes=100, seed=1).mean() < 0
    population.learn(8000, callback=not_yet, progress_bar=False)
    scores = [(row["step"], row["score"]) for row in population.evaluations]
    print(scores)
    assert scores[-1][1] >= 0.9
    assert p3s.evaluate(population, episodes=100, seed=1).mean() >= 0.8
