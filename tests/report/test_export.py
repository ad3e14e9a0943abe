"""Results as a table for other tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.errors import UserError
from p3s.report.export import export_results
from p3s.runs.records import read_rows


class TestExport:
    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_a_row_for_each_run_evaluation_and_learner(self, study, tmp_path, suffix):
        out = export_results(study, tmp_path / "out" / f"results.{suffix}")
        table = p3s.load_results(out)
        assert len(table) == 2 * 5 * 12 * (4 + 1)
        row = table.filter(run=str(study / "runs/p3s-td3-ant-v1-3"), step=8000, learner=2).row(
            0, named=True
        )
        written = read_rows(Path(row["run"], "evaluations.jsonl"))[1]
        assert row["learner_return"] == pytest.approx(np.mean(written["learner_returns"][2]))
        assert row["score"] == pytest.approx(written["score"])
        assert (row["method"], row["env"], row["seed"]) == ("P3S-TD3", "Ant-v1", 3)
        assert (row["scheme"], row["episodes"], row["paper"]) == ("p3s", 10, 5339.66)
        assert p3s.load_results(study).shape == table.shape
        runs = [study / "runs" / f"p3s-td3-ant-v1-{seed}" for seed in (1, 3)]
        assert len(p3s.load_results(*runs)) == 2 * 12 * 4

    def test_bad_input(self, study, tmp_path):
        with pytest.raises(UserError, match=r"not 'results.xlsx'"):
            export_results(study, tmp_path / "results.xlsx")
        with pytest.raises(UserError, match="does not exist"):
            p3s.load_results(tmp_path / "nothing.parquet")
