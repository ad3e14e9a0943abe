"""The numbers of a report: final values, curves, intervals, cautions."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from p3s.report.aggregates import compare, lower_tails
from p3s.report.context import cautions, differing_settings, provenance_rows
from p3s.report.curves import method_curve, thin
from p3s.report.guidance import lineage_strip
from p3s.report.results import read_results, read_run
from p3s.report.scales import final_value
from p3s.report.summary import summarize
from p3s.runs.records import read_rows
from tests.synthetic_runs import ENVS, METHODS, write_rows, write_run


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def small_run(path: Path, scores: list[float], seed: int = 0, steps: int | None = None, **fields):
    """A run of one learner with these scores, at steps 100, 200, …"""
    write_run(path, fields.pop("method", "TD3"), "Pendulum-v1", seed, 1, **fields)
    rows = [
        {"step": 100 * (index + 1), "updates": 10 * index, "learner_returns": [[score]],
         "score": score, "mean": score, "champion": None, "champion_return": None,
         "seconds": float(index)}
        for index, score in enumerate(scores)
    ]  # fmt: skip
    write_rows(path / "evaluations.jsonl", rows)
    config = json.loads((path / "config.json").read_text())
    config["steps"] = 100 * len(scores) if steps is None else steps
    (path / "config.json").write_text(json.dumps(config))


class TestNumbers:
    def test_final_value_is_the_mean_of_the_last_tenth(self, tmp_path):
        small_run(tmp_path / "short", [1, 2, 3])
        assert final_value(read_run(tmp_path / "short")[0], "score", 1e9) == 3
        assert final_value(read_run(tmp_path / "short")[0], "score", 250) == 2
        small_run(tmp_path / "long", list(range(40)))
        assert final_value(read_run(tmp_path / "long")[0], "score", 1e9) == np.mean(
            [36, 37, 38, 39]
        )
        assert np.isnan(final_value(read_run(tmp_path / "long")[0], "champion_return", 1e9))

    def test_unequal_lengths(self, tmp_path):
        small_run(tmp_path / "a", [1, 2, 3, 4], seed=0)
        small_run(tmp_path / "b", [3, 4, 5, 6, 7, 8], seed=1)
        small_run(tmp_path / "c", [100, 100], seed=2, steps=400)
        results = read_results([tmp_path])
        summary = summarize(results, rng())
        cell = summary.cells["single-td3", "Pendulum-v1"]
        assert summary.scales["Pendulum-v1"].step == 400
        assert (cell.seeds, cell.score.values.tolist()) == ([0, 1], [4.0, 6.0])
        assert cell.area.values.tolist() == [2.5, 4.5]
        assert "runs that ended earlier appear in the curves only" in summary.notes[0]
        said = "\n".join(cautions(results))
        assert "runs differ in steps: 400 (2 runs), 600 (1 run)" in said
        assert "1 run is not complete: single-td3 on Pendulum-v1, seed 2" in said
        curve = method_curve(results.runs, rng())
        assert curve.counts.tolist() == [3, 3, 2, 2, 1, 1]
        assert curve.bands["score"].mean.tolist() == pytest.approx([104 / 3, 106 / 3, 4, 5, 7, 8])
        assert np.isnan(curve.bands["score"].low[-1])
        assert np.isnan(curve.bands["champion"].mean).all()

    def test_steps_between_evaluations_are_interpolated(self, tmp_path):
        small_run(tmp_path / "a", [0, 10, 20], seed=0)
        small_run(tmp_path / "b", [0, 0, 0], seed=1)
        rows = read_rows(tmp_path / "b/evaluations.jsonl")
        rows[1]["step"] = 150
        write_rows(tmp_path / "b/evaluations.jsonl", rows)
        curve = method_curve(read_results([tmp_path]).runs, rng())
        assert curve.steps.tolist() == [100, 150, 200, 300]
        assert curve.bands["score"].lines[0].tolist() == [0, 5, 10, 20]

    def test_best_of_n_single_runs(self, study):
        summary = summarize(read_results([study]), rng())
        cell = summary.cells["TD3", "Ant-v1"]
        values = np.sort(cell.score.values)
        # The maximum of 4 of 5 is the largest unless that one is left out.
        assert cell.best_of["count"] == 4
        assert cell.best_of["full"] == pytest.approx(0.8 * values[4] + 0.2 * values[3])
        assert cell.best_of["equal"] < cell.best_of["full"]
        assert summary.cells["P3S-TD3", "Ant-v1"].best_of == {}

    def test_scales_and_aggregates(self, study):
        summary = summarize(read_results([study]), rng())
        scale = summary.scales["Hopper-v1"]
        assert (scale.low, scale.high, scale.source) == (0.0, 3705.92, "highest published score")
        ours, theirs = summary.aggregates
        assert (ours.method, theirs.method) == METHODS
        cells = [summary.cells["TD3", env] for env in ENVS]
        parts = [cell.score.values / cell.paper for cell in cells]
        assert theirs.gap.value == pytest.approx(
            np.mean([np.maximum(0, 1 - part) for part in parts])
        )
        assert ours.iqm.interval.low < ours.iqm.value < ours.iqm.interval.high
        assert ours.profile[0] == 1.0
        forth, back = summary.improvements
        assert forth.chance + back.chance == 1.0
        champions = [
            [ours.measures["champion"].values, theirs.measures["champion"].values]
            for ours, theirs in (
                (summary.cells[forth.ours, env], summary.cells[forth.theirs, env])
                for env in summary.scales
            )
        ]
        wins = [np.mean(mine[:, None] > other[None, :]) for mine, other in champions]
        assert forth.chance == pytest.approx(np.mean(wins))
        assert summary.best("Ant-v1") == "P3S-TD3"

    def test_one_environment_left_out(self, study):
        """A number over two environments, without one of them, is that of the other."""
        summary = summarize(read_results([study]), rng())
        assert summary.overall.envs == list(ENVS)
        ours = summary.aggregates[0]
        alone = [
            float(
                np.mean(summary.scales[env].normalize(summary.cells[METHODS[0], env].score.values))
            )
            for env in ENVS
        ]
        assert ours.mean.left_out == pytest.approx((min(alone), max(alone)))
        forth, back = summary.improvements
        assert forth.left_out.low <= forth.chance <= forth.left_out.high
        assert back.left_out == pytest.approx((1 - forth.left_out.high, 1 - forth.left_out.low))
        assert forth.stands is not None
        assert (forth.verdict, back.verdict) in [
            ("above", "below"), ("below", "above"), ("undecided", "undecided")
        ]  # fmt: skip

    def test_comparisons_are_exact_and_corrected(self):
        """Five above five: p = 2/252, times three pairs. One equal environment more hides it."""
        low, high = np.arange(5.0), np.arange(5.0) + 10
        forth, *_ = compare({"a": [high], "b": [low], "c": [low]}, rng())
        assert (forth.p_value, forth.verdict) == (pytest.approx(6 / 252), "above")
        assert forth.stands is None
        mixed = np.array([0.0, 2.0, 4.0, 6.0, 8.0])
        forth, *_ = compare({"a": [high, mixed], "b": [low, mixed]}, rng())
        assert (forth.verdict, forth.stands) == ("undecided", False)
        assert forth.left_out == (0.5, 1.0)

    def test_lower_tails_share_a_bar(self):
        """The median of 1, 2 and 9, 10 is 5.5: both runs of b are below half of it."""
        tails = lower_tails({"a": [np.array([9.0, 10.0])], "b": [np.array([1.0, 2.0])]})
        assert (tails["a"].share, tails["b"].share) == (0.0, 1.0)
        assert tails["b"].quantile == pytest.approx(1.1)

    def test_three_seeds_on_one_environment_have_no_interval(self, tmp_path):
        for seed in range(4):
            small_run(tmp_path / str(seed), [1, 2 + seed], seed=seed)
        four = read_results([tmp_path])
        three = dataclasses.replace(four, runs=four.runs[:3])
        key = ("single-td3", "Pendulum-v1")
        assert np.isfinite(summarize(four, rng()).cells[key].score.interval.low)
        assert np.isnan(summarize(three, rng()).cells[key].score.interval.low)
        assert np.isnan(method_curve(three.runs, rng()).bands["score"].low).all()
        assert "– stands for an interval" in "\n".join(cautions(three))
        assert "– stands for an interval" not in "\n".join(cautions(four))

    def test_without_published_scores_the_best_is_1(self, study):
        summary = summarize(read_results([study / "runs"]), rng())
        scale = summary.scales["Ant-v5"]
        means = [cell.score.mean for cell in summary.cells.values() if cell.env == "Ant-v5"]
        assert scale.high == pytest.approx(max(means))
        assert np.isnan(summary.aggregates[0].gap.value)

    def test_mixed_versions_missing_seeds_and_few_seeds(self, own_study):
        runs = sorted((own_study / "runs").iterdir())
        config = json.loads((runs[0] / "config.json").read_text())
        config["versions"]["jax"], config["commit"] = "0.11.0", None
        (runs[0] / "config.json").write_text(json.dumps(config))
        shutil.rmtree(own_study / "runs/td3-ant-v1-3")
        shutil.rmtree(own_study / "runs/td3-ant-v1-4")
        results = read_results([own_study])
        said = "\n".join(cautions(results))
        assert "runs come from different commits" in said
        assert "runs come from different package versions" in said
        assert "TD3 on Ant-v1 lacks seeds that other methods have: 3, 4" in said
        assert "some methods have as few as 3 seeds" in said
        assert "jax 0.10.2 (17 runs), 0.11.0 (1 run)" in dict(provenance_rows(results))["versions"]

    def test_settings_that_differ(self, study):
        methods, rows = differing_settings(read_results([study]))
        assert methods == list(METHODS)
        assert dict(rows)["scheme"] == ["p3s", "single"]
        assert dict(rows)["scheme.d_min"] == ["0.05 (Hopper-v1); 0.02 (Ant-v1)", "–"]
        assert "algorithm.discount" not in dict(rows)
        assert "environment" not in dict(rows)

    def test_lineage_strip(self, tmp_path):
        write_run(tmp_path / "run", "P3S-TD3", "Ant-v1", 0, 2)
        rows = [{"step": 100 * (i + 1), "best": b} for i, b in enumerate([None, 1, 1, 0, 2, 2])]
        write_rows(tmp_path / "run/lineage.jsonl", rows)
        run = read_run(tmp_path / "run")[0]
        parts = [(200, 400, 1), (400, 500, 0), (500, 8000, 2)]
        assert lineage_strip(run) == parts
        assert lineage_strip(run, most=2) == [(200, 500, 1), (500, 8000, 2)]
        nobody = dataclasses.replace(run, lineage=[{"step": 100, "best": None, "beta": 1.0}])
        assert lineage_strip(nobody) == []

    def test_thin(self):
        assert thin(3, 120).tolist() == [0, 1, 2]
        assert thin(250, 4).tolist() == [0, 83, 166, 249]
