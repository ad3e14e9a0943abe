"""Results as a table for other tools."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import p3s
from p3s.errors import UserError
from p3s.report.export import export_results, results_of
from p3s.report.references import Reference, references_text
from p3s.report.results import read_results
from p3s.report.summary import summarize
from p3s.runs.records import read_rows
from tests.synthetic_runs import ENVS


class TestExport:
    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_a_row_for_each_run_evaluation_and_learner(self, study, tmp_path, suffix):
        out = export_results(study, tmp_path / "out" / f"results.{suffix}")
        table = p3s.load_results(out)
        assert len(table) == 2 * 5 * 12 * (4 + 1)
        run = Path("runs/p3s-td3-ant-v1-3")
        where = str(study.name / run)  # a file tells nothing of the machine
        row = table.filter(run=where, step=8000, learner=2).row(0, named=True)
        written = read_rows(study / run / "evaluations.jsonl")[1]
        assert row["learner_return"] == pytest.approx(np.mean(written["learner_returns"][2]))
        assert row["score"] == pytest.approx(written["score"])
        assert (row["method"], row["env"], row["seed"]) == ("P3S-TD3", "Ant-v1", 3)
        assert (row["scheme"], row["episodes"], row["paper"]) == ("p3s", 10, 5339.66)
        assert p3s.load_results(study).shape == table.shape
        runs = [study / "runs" / f"p3s-td3-ant-v1-{seed}" for seed in (1, 3)]
        assert len(p3s.load_results(*runs)) == 2 * 12 * 4

    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_the_file_alone_gives_the_numbers_of_the_report(self, own_study, tmp_path, suffix):
        """Scales from the references, aggregates, verdicts: no folder is needed for them."""
        earned = {"idle": [10.0, 20.0], "random": [5.0, 6.0]}
        references = {env: Reference({"id": env}, earned) for env in ENVS}
        (own_study / "references.json").write_text(references_text(references))
        out = export_results(own_study, tmp_path / f"results.{suffix}")
        whole = summarize(read_results([own_study]), np.random.default_rng(0))
        alone = summarize(results_of(p3s.load_results(out)), np.random.default_rng(0))
        for env, scale in whole.scales.items():
            same = alone.scales[env]
            assert (same.step, same.source) == (scale.step, scale.source)
            assert (same.low, same.high) == pytest.approx((scale.low, scale.high))
        assert alone.scales[ENVS[0]].low == 15.0
        for one, other in zip(whole.aggregates, alone.aggregates, strict=True):
            assert other.champion_iqm.value == pytest.approx(one.champion_iqm.value)
            assert other.tail == pytest.approx(one.tail)
        for one, other in zip(whole.improvements, alone.improvements, strict=True):
            assert (other.p_value, other.verdict) == (pytest.approx(one.p_value), one.verdict)

    def test_runs_of_several_machines(self, study, own_study, tmp_path):
        """A table and a folder: every run once, where it got furthest."""
        table = export_results(study, tmp_path / "there.csv")
        for lost in (own_study / "runs").glob("td3-*"):
            shutil.rmtree(lost)
        behind = own_study / "runs/p3s-td3-ant-v1-3/evaluations.jsonl"
        behind.write_text("".join(behind.read_text().splitlines(keepends=True)[:5]))
        whole, joined = p3s.load_results(study), p3s.load_results(own_study, table)
        order = ["method", "env", "seed", "step", "learner"]
        same = ["score", "champion_return", "learner_return", "complete"]
        ours, theirs = (one.sort(order).select(*order, *same).to_dicts() for one in (joined, whole))
        assert ours == theirs
        by_run = joined.group_by("method").agg(pl.col("run").first()).sort("method")["run"]
        assert [str(own_study) in run for run in by_run] == [True, False]
        out = export_results(own_study, tmp_path / "all.parquet", [table])
        assert p3s.load_results(out).shape == joined.shape

    def test_bad_input(self, study, tmp_path):
        with pytest.raises(UserError, match=r"not 'results.xlsx'"):
            export_results(study, tmp_path / "results.xlsx")
        with pytest.raises(UserError, match="does not exist"):
            p3s.load_results(tmp_path / "nothing.parquet")
