"""The claims are tested on the report's scale, with one primary hypothesis."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.report.export import results_of
from p3s.report.statistics import holm
from p3s.report.summary import summarize

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results/laptop.parquet"


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("claims")


@pytest.fixture(scope="module")
def table():
    pytest.importorskip("polars")
    return p3s.load_results(RESULTS)


class TestClaims:
    def test_scale_and_tasks_are_those_of_the_report(self, claims, table):
        """Nothing is normalized by the study's own lowest return, nor kept without range."""
        returns = claims.Returns(table)
        whole, _ = claims.whole(results_of(table))
        summary = summarize(whole, np.random.default_rng(0))
        assert returns.envs == summary.overall.envs
        for env in returns.envs:
            scale = summary.scales[env]
            raw = returns.raw("P3S", env, returns.last[env])
            assert scale.low == max(scale.reference.means.values())
            assert returns.at("P3S", env, returns.last[env]) == pytest.approx(scale.normalize(raw))

    def test_one_primary_hypothesis_and_the_others_corrected(self, claims):
        raw = [
            claims.Row("P3S > TD3", "all", False, 0.7, 0.02),
            claims.Row("P3S > TD3", "sparse", False, 0.8, 0.04),
            claims.Row("P3S > TD3", "sparse", True, 0.2, 0.03),
        ]
        rows = claims.correct(raw)
        assert [row.primary for row in rows] == [False, True, False]
        others = holm([0.02, 0.03])
        assert [row.p_value for row in rows] == pytest.approx([others[0], 0.04, others[1]])
        assert [row.verdict for row in rows] == ["confirmed", "confirmed", "refuted"]

    def test_a_verdict_that_hangs_on_one_task_does_not_stand(self, claims):
        row = claims.Row("P3S > TD3", "sparse", False, 0.8, 0.04)
        weak = claims.Row("P3S > TD3", "sparse", False, 0.6, 0.2)
        assert claims.claim_line(row, "+0.1", [[row], [row]]).endswith("| 0.80 to 0.80 | yes |")
        line = claims.claim_line(row, "+0.1", [[row], [weak]])
        assert "(primary)" in line
        assert line.endswith("| confirmed | 0.60 to 0.80 | no |")

    def test_returns_of_three_seeds_decide_nothing(self, claims):
        """The table shows seeds and an exact p, not an interval."""
        returns = importlib.import_module("returns")
        case = {"env": "Hopper-v5", "algorithm": "sac", "steps": 10}
        rows = [
            {**case, "kind": kind, "seed": seed, "returns": [level + seed]}
            for kind, level in (("single", 100.0), ("population", 0.0))
            for seed in range(3)
        ]
        line = returns.table(rows, 10).splitlines()[-1]
        assert line == "| sac, Hopper-v5 |  | 101 (100 to 102) | 1 (0 to 2) | 0.10 |"

    def test_no_interval_from_three_seeds_on_one_task(self, claims):
        ours, theirs = np.arange(3.0), np.arange(3.0) + 10
        rng = np.random.default_rng(0)
        assert np.isnan(claims.difference([ours], [theirs], rng)[1].low)
        assert np.isfinite(claims.difference([ours, ours], [theirs, theirs], rng)[1].low)
