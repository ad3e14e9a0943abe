"""Every scheme learns a real small task; minutes (make test-slow)."""

from __future__ import annotations

import pytest

from p3s import Population
from p3s.schemes import SCHEMES

FIELDS = {
    "cem": {"num_learners": 10, "initial_steps": 100},
    "erl": {"num_learners": 10},
    "evorainbow": {"initial_steps": 200},
    "resetting": {"review_period": 500},
    "pbt": {"review_period": 500},
    "pb2": {"review_period": 500},
    "mf_pbt": {"review_period": 250, "group_periods": (1, 2)},
}

STEPS = {"cem": 30_000, "erl": 40_000, "evorainbow": 40_000, "single": 12_000}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"rollout"}))
def test_learns(scheme):
    """Pendulum-v1 above -250, where a policy that does nothing has about -1,200."""
    population = Population(
        "Pendulum-v1",
        scheme=scheme,
        preset="authors",
        hidden_sizes=(64, 64),
        **FIELDS.get(scheme, {}),
    )
    steps = STEPS.get(scheme, 20_000)
    population.learn(steps, progress_bar=False)
    scores = [row["score"] for row in population.evaluations]
    print(f"{scheme}: best score {max(scores):.0f}, last {scores[-1]:.0f} after {steps} steps")
    assert population.num_steps == steps
    assert max(scores) > -250
