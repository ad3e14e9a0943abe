"""What a report reads, and what it says about damaged runs."""

from __future__ import annotations

import json
import shutil

import pytest

from p3s.errors import UserError
from p3s.report.failures import Failure
from p3s.report.page import build_report, render_report
from p3s.report.results import read_results, read_run
from p3s.runs.records import read_rows
from tests.synthetic_runs import ENVS, METHODS, write_rows, write_run


class TestReading:
    def test_study(self, study):
        results = read_results([study])
        assert results.title == "A made-up study"
        assert (results.methods, results.envs) == (list(METHODS), list(ENVS))
        assert len(results.runs) == 20
        assert all(run.complete for run in results.runs)
        assert results.select("P3S-TD3", "Ant-v1")[0].paper == 5339.66
        assert not results.notes

    def test_plain_folders_get_labels_from_their_settings(self, study, tmp_path):
        results = read_results([study / "runs"])
        assert set(results.methods) == {"p3s-td3", "single-td3"}
        assert set(results.envs) == {"Hopper-v5", "Ant-v5"}
        write_run(tmp_path / "a", "P3S-TD3", "Ant-v1", 0, d_min=0.02, rho=3.0)
        write_run(tmp_path / "b", "P3S-TD3", "Ant-v1", 0, d_min=0.05, rho=3.0)
        assert read_results([tmp_path]).methods == ["p3s-td3, d_min 0.02", "p3s-td3, d_min 0.05"]

    def test_damaged_runs_are_said_and_the_rest_used(self, own_study):
        runs = sorted((own_study / "runs").iterdir())
        (runs[0] / "config.json").write_text("{")
        file = runs[1] / "evaluations.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:3], "{broken\n", *lines[3:]]))
        (runs[2] / "evaluations.jsonl").write_text("")
        shutil.rmtree(runs[3])
        (runs[4] / "evaluations.jsonl").write_text(lines[0] + '{"step": 8000}\n')
        results = read_results([own_study])
        notes = "\n".join(results.notes)
        assert len(results.runs) == 17
        assert f"left out: {runs[0] / 'config.json'} is damaged" in notes
        assert f"{file}: line 4 is damaged, only the rows before it are used" in notes
        assert f"left out: {runs[2]} has no evaluation yet" in notes
        assert f"1 of 20 runs have not started: {runs[3].name}" in notes
        assert f"{runs[4] / 'evaluations.jsonl'}: line 2 has no 'updates'" in notes
        page = render_report(build_report(results))
        assert "is damaged, only the rows before it are used" in page

    def test_a_last_line_still_being_written_is_no_damage(self, own_study):
        run = sorted((own_study / "runs").iterdir())[0]
        with (run / "evaluations.jsonl").open("a") as file:
            file.write('{"step": 52')
        assert read_run(run)[1] == []

    def test_failures(self, own_study):
        first, name = (
            json.loads((own_study / "cells.json").read_text())["cells"][i]["id"] for i in (0, 3)
        )
        failure = {"error": "the <battery> is empty", "traceback": "Traceback…", "step": 240}
        for each in (first, name):
            (own_study / "failures" / f"{each}.json").write_text(json.dumps(failure))
        rows = read_rows(own_study / "runs" / name / "evaluations.jsonl")
        write_rows(own_study / "runs" / name / "evaluations.jsonl", rows[:4])
        results = read_results([own_study])
        assert results.failures == [(name, Failure(**failure))]  # the first went on to its end
        page = render_report(build_report(results))
        assert "1 run failed" in page
        assert "at step 240:" in page
        assert "the &lt;battery&gt; is empty" in page

    @pytest.mark.parametrize("record", [{}, [], 3, {"error": None, "step": "x"}, {"error": [1]}])
    def test_a_damaged_failure_is_shown_as_far_as_it_makes_sense(self, own_study, record):
        cell = json.loads((own_study / "cells.json").read_text())["cells"][3]
        (own_study / "failures" / f"{cell['id']}.json").write_text(json.dumps(record))
        rows = read_rows(own_study / cell["run"] / "evaluations.jsonl")
        write_rows(own_study / cell["run"] / "evaluations.jsonl", rows[:4])
        assert "1 run failed" in render_report(build_report(read_results([own_study])))

    @pytest.mark.parametrize(
        ("key", "value"),
        [("id", None), ("id", "../../x"), ("run", "/etc"), ("run", "a/../../b"), ("method", 1.5),
         ("env", []), ("seed", "x"), ("seed", True), ("paper", "high"), ("id", "a\0b")],
    )  # fmt: skip
    def test_a_cell_that_no_study_wrote_is_refused(self, own_study, key, value):
        study = json.loads((own_study / "cells.json").read_text())
        study["cells"][0][key] = value
        (own_study / "cells.json").write_text(json.dumps(study))
        with pytest.raises(UserError, match=r"cells\.json is damaged"):
            read_results([own_study])

    def test_the_same_seed_twice_is_no_replication(self, study, tmp_path):
        run = next(iter((study / "runs").iterdir()))
        shutil.copytree(run, tmp_path / "again")
        results = read_results([run, tmp_path / "again", run])
        assert len(results.runs) == 1
        assert results.notes == [
            f"left out: {tmp_path / 'again'} repeats the seed of a run at least as long"
        ]

    def test_bad_input(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken/cells.json").write_text('{"cells": 3}')
        for paths, message in (
            ([], "give run folders"),
            ([tmp_path / "nowhere"], "does not exist: expected a run folder"),
            ([tmp_path / "empty"], "holds no run"),
            ([tmp_path / "broken"], "cells.json is damaged"),
        ):
            with pytest.raises(UserError, match=message):
                read_results(paths)
