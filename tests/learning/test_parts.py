"""Learning from images with numbers beside them."""

from __future__ import annotations

import numpy as np
import pytest
from examples.camera_and_joints import Slides
from examples.grid import WRAPPER

import p3s
from p3s import Population

SMALL = {
    "scheme": "single",
    "hidden_sizes": (64, 64),
    "batch_size": 64,
    "initial_steps": 500,
    "buffer_size": 20_000,
    "evaluation_period": 1000,
    "evaluation_episodes": 20,
    "seed": 0,
}


def learn_until(population: Population, enough: float, steps: int) -> list[tuple[int, float]]:
    """The evaluations until one is good enough, or the steps are used up."""

    def not_yet(population: Population) -> bool:
        return not population.evaluations or population.evaluations[-1]["score"] < enough

    population.learn(steps, callback=not_yet, progress_bar=False)
    return [(row["step"], row["score"]) for row in population.evaluations]


def waiting_return(episodes: int = 300) -> float:
    """What the best hand earns that does not see the target: it goes to the middle."""
    env, totals = Slides(), []
    for seed in range(episodes):
        env.reset(seed=seed)
        over, total = False, 0.0
        while not over:
            _, reward, _, over, _ = env.step(np.clip(-env.joints / env.SPEED, -1, 1))
            total += reward
        totals.append(total)
    return float(np.mean(totals))


@pytest.mark.slow
def test_sac_reaches_what_only_the_camera_sees():
    assert -8.5 < waiting_return() < -7
    population = Population(Slides, algorithm="sac", **SMALL)
    assert population.training.spec.observation.images == ((16, 16, 1),)
    scores = learn_until(population, -3.5, 6000)
    print(scores)
    assert scores[-1][1] >= -3.5
    assert p3s.evaluate(population, episodes=50, seed=1).mean() >= -4


@pytest.mark.slow
def test_dqn_learns_minigrid():
    """Chance hardly ever arrives; the shortest way earns 0.955."""
    pytest.importorskip("minigrid")
    population = Population(
        "minigrid:MiniGrid-Empty-5x5-v0", wrappers=[WRAPPER], algorithm="dqn",
        scale_images=False, **SMALL,
    )  # fmt: skip
    assert population.training.spec.observation.images == ((7, 7, 3),)
    scores = learn_until(population, 0.9, 10_000)
    print(scores)
    assert scores[-1][1] >= 0.9
