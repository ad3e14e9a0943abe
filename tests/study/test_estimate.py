"""How long a study will take."""

from __future__ import annotations

import math

import pytest

from p3s.study import estimate
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells


def test_evaluations_count_at_full_length():
    config = make_cells(find_study("figure5"))[0].config
    # 250 evaluations of 4 learners, then of the champion and the chief's pick, 10 episodes each.
    assert estimate.evaluation_steps(config, 4, 1000) == 250 * 6 * 10 * 1000


def test_seconds_per_step():
    compiling, slow = estimate.Lap(90.0, 4, 1), estimate.Lap(3.0, 4, 1)
    # Updates with every step; what compiles in between is left out, however often it happens.
    even, odd = estimate.Lap(0.2, 4, 1), estimate.Lap(0.4, 4, 1)
    laps = [estimate.Lap(0.1, 4, 0)] * 5 + [compiling] * 3 + [even, odd] * 4 + [slow]
    assert estimate.seconds_per_step(laps, None) == pytest.approx(0.3 / 4)
    # Hardly begun: nothing is known.
    assert math.isnan(estimate.seconds_per_step([*laps[:8], even, odd], None))
    assert math.isnan(estimate.seconds_per_step(laps[:5], None))
    # An update after a rollout of 10 steps.
    rest, learn = estimate.Lap(0.1, 1, 0), estimate.Lap(1.1, 1, 1)
    rollout = [*[rest] * 9, learn]
    laps = [*[rest] * 9, estimate.Lap(9.0, 1, 1), *rollout * 6]
    assert estimate.seconds_per_step(laps, None) == pytest.approx(0.2)
    # Rounds: 3 steps at a time, and then one update for each of them.
    rounds = [estimate.Lap(0.3, 3, 0)] * 8 + [estimate.Lap(9.0, 0, 1)] * 2
    rounds += [estimate.Lap(0.5, 0, 1)] * 6
    assert estimate.seconds_per_step(rounds, 1) == pytest.approx(0.1 + 0.5)
