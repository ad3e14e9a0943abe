"""Populations that learn a real small task."""

from __future__ import annotations

from p3s import Population


def test_p3s_learns_pendulum():
    """A score above -250 within 12,000 total steps; an untrained policy has about -1,400."""
    population = Population(
        "Pendulum-v1", preset="authors", hidden_sizes=(64, 64), seed=0, evaluation_period=2000
    )

    def not_yet(population: Population) -> bool:
        return not population.evaluations or population.evaluations[-1]["score"] <= -250

    population.learn(12_000, callback=not_yet, progress_bar=False)
    assert population.evaluations[0]["score"] < -1000
    assert population.evaluations[-1]["score"] > -250
    assert population.evaluations[-1]["champion_return"] > -400
