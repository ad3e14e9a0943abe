"""`p3s study`: its tables, and what bad input gets."""

from __future__ import annotations

import os
import re

import pytest

from p3s.envs import make_env
from p3s.study import estimate
from p3s.study.catalog import catalog, find_study
from p3s.study.cells import make_cells
from tests.helpers import call


class TestCommand:
    def test_list(self, capsys):
        code, output, _ = call(capsys, "study", "list")
        assert code == 0
        for name in catalog():
            assert name in output
        assert re.search(r"figure4 .*parallel learning schemes +200 +1,000,000", output)

    def test_show(self, capsys):
        code, output, _ = call(
            capsys, "study", "show", "figure4", "--no-calibrate", "--steps", 3000, "--seeds", 2,
            "--jobs", 2, "--only", "env=Hopper,env=Delayed Hopper",
        )  # fmt: skip
        assert code == 0
        assert "20 cells of up to 3,000 steps: 60,000 steps in total" in output
        assert re.search(r"Delayed Hopper-v5( +2){5}\n", output)
        # A row of Hopper: two observations of 11, 3 actions, reward and discount, 4 bytes each.
        assert estimate.replay_bytes(
            make_cells(find_study("figure4").with_budget(3000, 1))[0].config,
            make_env("Hopper-v5").env_spec,
        ) == 3000 * 27 * 4  # fmt: skip
        assert "disk: up to 0.0 GB" in output
        assert "time:" not in output

    def test_show_with_another_preset(self, capsys):
        shown = ["study", "show", "appendix-f", "--no-calibrate", "--only", "seed=0"]
        assert "\npresets paper (P3S-TD3, TD3); authors (ERL)\n" in call(capsys, *shown)[1]
        code, output, _ = call(capsys, *shown, "--preset", "recommended", "--steps", 3000)
        assert code == 0
        assert "3 cells of up to 3,000 steps" in output
        assert "\npresets recommended (P3S-TD3, TD3); authors (ERL)\n" in output
        assert "\npreset authors\n" in call(capsys, *shown, "--only", "method=ERL")[1]

    def test_show_calibrates(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(estimate, "TIMED_SECONDS", 0.2)
        path = tmp_path / "tiny.toml"
        path.write_text(
            'environments = ["InvertedPendulum-v5"]\nsteps = 3_600\n[fields]\n'
            "hidden_sizes = [16, 16]\nbatch_size = 8\nevaluation_period = 0"
        )
        allowed = os.sched_getaffinity(0)
        code, output, _ = call(capsys, "study", "show", path, "--seeds", 2, "--jobs", 1)
        assert code == 0
        assert re.search(r"InvertedPendulum-v5 +\d+ (s|min)", output)
        assert "with 1 run at a time\nspeeds: 1 timed on this machine\n" in output
        assert os.sched_getaffinity(0) == allowed

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("run figure44", "unknown study 'figure44': did you mean figure4"),
            ("run mine.toml", "mine.toml cannot be read"),
            ("run figure4 --jobs 0", "jobs must be at least 1, not 0"),
            ("run figure4 --only env=Hoper", "did you mean hopper?"),
            ("run figure4 --out .", "exists and is not a study"),
            ("run figure4 --preset author", "unknown preset 'author': did you mean authors?"),
            ("show figure4 --seeds 0", "seeds must be at least 1"),
            ("status figure4", "there is no study in studies/figure4 yet: p3s study run figure4"),
            ("status .", "is not a study"),
            ("export figure4 -o results.parquet", "there is no study in studies/figure4 yet"),
        ],
    )
    def test_bad_input_is_one_line(self, capsys, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "something").touch()
        code, _, errors = call(capsys, "study", *arguments.split())
        assert code == 2
        assert message in errors
        assert errors.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["something"]
