"""Statistics over seeds: numbers worked by hand, coverage on simulated data, rliable as oracle."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from p3s.report import statistics
from p3s.report.statistics import (
    area_under_curve,
    expected_maximum,
    holm,
    improvement_interval,
    iqm,
    leave_one_out,
    lower_tail,
    mean,
    mean_interval,
    mean_intervals,
    optimality_gap,
    percentile_interval,
    performance_profile,
    permutation_p,
    probability_of_improvement,
    standard_deviation,
    steps_to_threshold,
    verdict,
)

ORACLE = Path(__file__).parent / "oracle_rliable.json"


def array(*values: float) -> np.ndarray:
    return np.array(values, float)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class TestByHand:
    def test_mean_weighs_environments_not_runs(self):
        assert mean([array(1, 3), array(10, 20, 30)]) == 11.0
        assert standard_deviation(array(1, 3)) == pytest.approx(2**0.5)
        assert np.isnan(standard_deviation(array(1)))

    def test_iqm_is_the_mean_of_the_middle_half(self):
        assert iqm([array(0, 1, 2, 3, 4, 5, 6, 100)]) == 3.5
        assert iqm([array(100, 0, 1, 2), array(6, 3, 4, 5)]) == 3.5
        assert iqm([array(1, 5, 3)]) == 3.0  # too few to leave out a quarter
        assert iqm([array(0, 1, 2, 3, 100)]) == 2.0

    def test_optimality_gap_counts_shortfall_only(self):
        assert optimality_gap([array(0.5, 1.5), array(1.0, 0.0)]) == 0.375
        assert optimality_gap([array(50, 150)], target=100) == 0.25

    def test_probability_of_improvement(self):
        # 1 > 0; 1 = 1 half; 3 > 0; 3 > 1: 3.5 of 4. Second environment: never.
        assert probability_of_improvement([array(1, 3)], [array(0, 1)]) == 0.875
        ours, theirs = [array(1, 3), array(0, 0)], [array(0, 1), array(5, 6, 7)]
        assert probability_of_improvement(ours, theirs) == 0.4375
        assert probability_of_improvement(theirs, ours) == 1 - 0.4375

    def test_expected_maximum_of_all_choices(self):
        # Pairs of 1, 2, 4: maxima 2, 4, 4.
        assert expected_maximum(array(4, 1, 2), 2) == pytest.approx(10 / 3)
        assert expected_maximum(array(4, 1, 2), 1) == pytest.approx(7 / 3)
        assert expected_maximum(array(4, 1, 2), 3) == 4.0
        assert np.isnan(expected_maximum(array(4, 1, 2), 4))

    def test_area_under_curve_is_a_mean_height(self):
        # Trapezoids 10 * 1 and 20 * 4 over 30 steps.
        assert area_under_curve(array(0, 10, 30), array(0, 2, 6)) == 3.0
        assert area_under_curve(array(10), array(7)) == 7.0

    def test_steps_to_threshold(self):
        steps, scores = array(10, 20, 30), array(1, 5, 4)
        assert steps_to_threshold(steps, scores, 4) == 20
        assert steps_to_threshold(steps, scores, 5) == 20
        assert steps_to_threshold(steps, scores, 5.1) == np.inf

    def test_performance_profile(self):
        strata = [array(0.2, 0.8), array(0.5, 0.5, 0.5, 1.0)]
        profile = performance_profile(strata, array(0.0, 0.5, 0.9))
        assert profile.tolist() == [1.0, 0.375, 0.125]


class TestIntervals:
    def test_two_seeds_in_two_environments_are_student(self):
        # mean 3, error sqrt(1 + 1) / 2, t(0.975, 2) = 4.3027
        low, high = mean_interval([array(1, 3), array(3, 5)], rng())
        half_width = 4.3027 * 2**0.5 / 2
        assert (low, high) == pytest.approx((3 - half_width, 3 + half_width), abs=1e-3)

    @pytest.mark.parametrize("seeds", [2, 3])
    def test_few_seeds_in_one_environment_have_none(self, seeds):
        own, other = np.arange(seeds, dtype=float), np.arange(seeds) + 10.0
        assert np.isnan(mean_interval([own], rng())).all()
        assert np.isnan(percentile_interval(iqm, [own], rng())).all()
        assert np.isnan(improvement_interval([own], [other], rng())).all()
        assert np.isfinite(mean_interval([own, other], rng())).all()
        four = np.arange(4.0)
        assert np.isfinite(mean_interval([four], rng())).all()
        assert np.isfinite(improvement_interval([four], [four], rng())).all()

    def test_one_seed_has_none(self):
        assert np.isnan(mean_interval([array(1)], rng())).all()
        assert np.isnan(percentile_interval(iqm, [array(1)], rng())).all()

    def test_equal_seeds_have_no_width(self):
        assert mean_interval([array(7, 7, 7, 7, 7)], rng()) == (7, 7)

    def test_nearly_equal_seeds_keep_it_bounded(self):
        # Without a floor the interval would reach beyond -1e5: resamples without the 500 have
        # next to no error.
        low, high = mean_interval([array(1000, 1000.1, 999.9, 1000, 500)], rng())
        assert 500 < low < 900 < high < 1500

    def test_same_generator_same_interval(self):
        strata = [array(1, 2, 4, 8, 16), array(3, 1, 4, 1, 5)]
        assert mean_interval(strata, rng()) == mean_interval(strata, rng())
        other = mean_interval(strata, np.random.default_rng(1))
        assert mean_interval(strata, rng()) != other

    def test_moves_and_stretches_with_the_scores(self):
        scores = array(1, 2, 4, 8, 16)
        low, high = mean_interval([scores], rng())
        moved = mean_interval([10 * scores - 3], rng())
        assert moved == pytest.approx((10 * low - 3, 10 * high - 3))

    def test_many_points_at_once_are_each_alone(self):
        curves = rng().normal(size=(6, 3))
        low, high = mean_intervals([curves], np.random.default_rng(5))
        for point in range(3):
            alone = mean_interval([curves[:, point]], np.random.default_rng(5))
            assert (low[point], high[point]) == pytest.approx(tuple(alone))

    def test_improvement_interval_holds_the_estimate(self):
        ours, theirs = [array(1, 3, 5, 4, 2)], [array(0, 3, 1, 2, 2)]
        low, high = improvement_interval(ours, theirs, rng())
        assert 0 <= low < float(probability_of_improvement(ours, theirs)) < high <= 1

    def test_percentile_interval_is_wider_for_few_seeds(self):
        # Student's quantile and n - 1 instead of the normal one: beyond 2.5 % on each side.
        assert statistics.widened_tail([np.zeros(5)]) == pytest.approx(0.00096, abs=1e-5)
        assert statistics.widened_tail([np.zeros(10_000)]) == pytest.approx(0.025, abs=1e-4)


class TestDecisions:
    def test_exact_p_of_separated_seeds(self):
        # Of C(6, 3) = 20 and C(10, 5) = 252 ways to label the runs, 2 are as far apart.
        assert permutation_p([array(4, 5, 6)], [array(1, 2, 3)], rng()) == pytest.approx(0.10)
        five = permutation_p([array(1, 2, 3, 4, 5)], [array(6, 7, 8, 9, 10)], rng())
        assert five == pytest.approx(2 / 252)

    def test_exact_p_over_environments(self):
        # Both environments separate 2 from 2 in the same direction: 2 of 6 * 6 labelings.
        ours, theirs = [array(3, 4), array(30, 40)], [array(1, 2), array(10, 20)]
        assert permutation_p(ours, theirs, rng()) == pytest.approx(2 / 36)
        # In opposite directions nothing is seen: every labeling is as far from one half.
        assert permutation_p([ours[0], theirs[1]], [theirs[0], ours[1]], rng()) == pytest.approx(1)

    def test_exact_p_with_ties_and_unequal_numbers(self):
        # 1 against 0, 0, 1: 2.5 of 3 wins. Labelings: each 1 gives 2.5, each 0 gives 0.5.
        assert permutation_p([array(1)], [array(0, 0, 1)], rng()) == pytest.approx(1)
        # 2 against 0, 0, 1: 3 of 3; the others give 2, ½, ½, and none is as far from 1.5.
        assert permutation_p([array(2)], [array(0, 0, 1)], rng()) == pytest.approx(1 / 4)
        assert permutation_p([array(5, 5)], [array(5, 5)], rng()) == pytest.approx(1)

    def test_draws_agree_with_the_exact_test(self, monkeypatch):
        generator = np.random.default_rng(3)
        ours = [generator.normal(0.5, size=4), generator.normal(0.5, size=5)]
        theirs = [generator.normal(size=5), generator.normal(size=3)]
        exact = permutation_p(ours, theirs, rng())
        monkeypatch.setattr(statistics, "MAX_PARTS", 1)
        assert permutation_p(ours, theirs, rng()) == pytest.approx(exact, abs=0.02)

    def test_holm(self):
        # Sorted 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1, and no smaller than the one before.
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([0.7, 0.6]) == [1.0, 1.0]
        assert holm([]) == []

    def test_verdict(self):
        assert [verdict(0.9, 0.01), verdict(0.1, 0.01)] == ["above", "below"]
        assert [verdict(0.9, 0.05), verdict(0.9, np.nan)] == ["undecided", "undecided"]

    @pytest.mark.parametrize("seeds", [2, 3, 4, 5, 8])
    @pytest.mark.parametrize("modes", [False, True])
    def test_equal_methods_are_rarely_told_apart(self, seeds, modes):
        generator, decided = np.random.default_rng(seeds), 0
        for _ in range(1000):
            ours, theirs = generator.normal(size=(2, seeds))
            if modes:
                ours, theirs = (
                    0.1 * own + generator.choice([0, 1], seeds) for own in (ours, theirs)
                )
            decided += permutation_p([ours], [theirs], generator) < statistics.DECIDED
        assert decided / 1000 <= 0.07
        assert seeds >= statistics.MIN_SEEDS or decided == 0

    def test_leave_one_out(self):
        strata = [array(1, 3), array(4, 4), array(9, 9)]  # means 2, 4, 9
        assert leave_one_out(mean, strata) == (3.0, 6.5)
        assert np.isnan(leave_one_out(mean, strata[:1])).all()
        ours, theirs = [array(1), array(0)], [array(0), array(1)]
        assert leave_one_out(probability_of_improvement, ours, theirs) == (0.0, 1.0)

    def test_lower_tail(self):
        # Below 0.5 of 1.0: one of two. Below 0.2 of 0.4: one of three. No bar in the last.
        strata = [array(0.4, 1.0), array(0.1, 0.2, 0.3), array(-1.0)]
        found = lower_tail(strata, [1.0, 0.4, -0.5])
        assert found.share == pytest.approx(2 / 5)
        assert found.quantile == pytest.approx(-0.45)  # halfway from -1.0 to 0.1
        assert np.isnan(lower_tail([array(-1.0)], [0.0]).share)


def coverage(draw, envs: int, seeds: int, trials: int = 4000) -> float:
    """How often the interval holds the true mean, 0; trials are points of one long curve."""
    generator, hits = np.random.default_rng(0), 0
    for _ in range(20):
        scores = draw(generator, (envs, seeds, trials // 20))
        strata = [
            own * scale for own, scale in zip(scores, np.resize([1.0, 2.0, 0.5], envs), strict=True)
        ]
        low, high = mean_intervals(strata, generator, resamples=600)
        hits += ((low <= 0.0) & (high >= 0.0)).sum()
    return hits / trials


@pytest.mark.parametrize(("envs", "seeds"), [(1, 5), (1, 10), (1, 20), (3, 5), (3, 10)])
def test_coverage_of_the_mean_is_what_it_says(envs, seeds):
    assert 0.93 <= coverage(lambda g, shape: g.normal(size=shape), envs, seeds) <= 0.97


def test_coverage_with_skewed_scores():
    assert 0.93 <= coverage(lambda g, shape: g.gamma(2.0, size=shape) - 2.0, 1, 10) <= 0.97


def test_plain_percentiles_would_not_do():
    """The usual bootstrap misses its 95 % by far at five seeds: why this one is studentised."""
    generator, hits = np.random.default_rng(0), 0
    for _ in range(500):
        scores = generator.normal(size=5)
        drawn = generator.choice(scores, (600, 5)).mean(axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        hits += low <= 0.0 <= high
    assert hits / 500 < 0.88


class TestOracle:
    """oracle_rliable.py wrote the numbers, in an environment with rliable in it."""

    oracle = json.loads(ORACLE.read_text())
    ours = tuple(np.array(row) for row in oracle["ours"])
    theirs = tuple(np.array(row) for row in oracle["theirs"])

    def test_point_estimates(self):
        assert iqm(self.ours) == pytest.approx(self.oracle["iqm"])
        assert mean(self.ours) == pytest.approx(self.oracle["mean"])
        assert optimality_gap(self.ours) == pytest.approx(self.oracle["optimality_gap"])
        chance = probability_of_improvement(self.ours, self.theirs)
        assert chance == pytest.approx(self.oracle["probability_of_improvement"])
        thresholds = np.array(self.oracle["thresholds"])
        profile = performance_profile(self.ours, thresholds)
        assert profile == pytest.approx(self.oracle["profile"])

    def test_interval_is_theirs_widened(self, monkeypatch):
        theirs = self.oracle["iqm_interval"]
        widened = percentile_interval(iqm, self.ours, rng())
        assert widened.low < theirs[0]
        assert theirs[1] < widened.high
        monkeypatch.setattr(statistics, "widened_tail", lambda strata, level: (1 - level) / 2)
        plain = percentile_interval(iqm, self.ours, rng(), resamples=50_000)
        assert plain == pytest.approx(theirs, abs=0.006)

    def test_the_numbers_are_still_rliables(self):
        python = os.environ.get("RLIABLE_PYTHON", "")
        if not Path(python).is_file():
            pytest.skip("RLIABLE_PYTHON names no Python with rliable in it")
        script = ORACLE.with_suffix(".py")
        written = subprocess.run([python, script], capture_output=True, check=True, text=True)
        fresh = json.loads(written.stdout)
        for key in ("iqm", "mean", "optimality_gap", "probability_of_improvement", "profile"):
            assert fresh[key] == pytest.approx(self.oracle[key])
