"""A study's folder: states, locks, and runs that do not fit."""

from __future__ import annotations

import json
import os
import re

import pytest

from p3s.errors import UserError
from p3s.report.failures import Failure, read_failure, write_failure
from p3s.study.cells import Cell, check_environments, make_cells
from p3s.study.folder import Progress, StudyFolder
from tests.helpers_studies import GRID, study_of


class TestFolder:
    @pytest.fixture
    def cell(self) -> Cell:
        return make_cells(study_of(GRID))[0]

    @pytest.fixture
    def folder(self, tmp_path, cell) -> StudyFolder:
        folder = StudyFolder(tmp_path / "study")
        folder.write(study_of(GRID), make_cells(study_of(GRID)))
        return folder

    def begin(self, folder, cell, step):
        run = folder.run(cell)
        run.mkdir()
        (run / "config.json").write_text(json.dumps(cell.config.to_json()))
        (run / "metrics.jsonl").write_text(f'{{"step": {step}, "steps_per_second": 50}}\n')
        return run

    def test_states(self, folder, cell):
        assert folder.progress(cell).state == "waiting"
        run = self.begin(folder, cell, 300)
        assert folder.progress(cell) == Progress("stopped", 300, None, 50)
        write_failure(folder.failure(cell), Failure("no\nmore", "trace", 300))
        assert folder.progress(cell) == Progress("failed", 300, None, 50, "no")
        lock = folder.lock(cell)
        assert folder.progress(cell).state == "running"
        os.close(lock)
        (run / "checkpoints" / "step-000000000500").mkdir(parents=True)
        assert folder.progress(cell).state == "complete"

    def test_a_run_cut_off_before_its_last_checkpoint_is_not_complete(self, folder, cell):
        run = self.begin(folder, cell, 500)
        (run / "checkpoints" / "step-000000000400").mkdir(parents=True)
        assert not folder.is_complete(cell)

    def test_a_complete_run_without_checkpoints_stays_complete(self, folder, cell):
        run = self.begin(folder, cell, 500)
        assert not folder.is_complete(cell)
        (run / "policy.safetensors").touch()
        assert folder.is_complete(cell)

    def test_a_lock_excludes_others_and_goes_with_its_holder(self, folder, cell):
        first = folder.lock(cell)
        assert folder.lock(cell) is None
        os.close(first)
        second = folder.lock(cell)
        assert second is not None
        os.close(second)

    def test_a_run_begun_with_other_settings_is_refused(self, folder, cell):
        self.begin(folder, cell, 100)
        folder.check_runs(make_cells(study_of(GRID.replace("500", "900"))))
        other = study_of(GRID.replace("num_learners = 2", "num_learners = 2\nrho = 3"))
        with pytest.raises(UserError, match=r"started with rho = 2\.0, but the study says 3\.0"):
            folder.check_runs(make_cells(other))

    def test_a_run_begun_with_another_preset_is_refused(self, folder, cell):
        self.begin(folder, cell, 100)
        other = study_of(GRID).with_preset("paper")
        with pytest.raises(
            UserError, match="started with preset = recommended, but the study says paper"
        ):
            folder.check_runs(make_cells(other))

    def test_a_run_begun_with_other_arguments_of_its_environment_is_refused(self, folder):
        given = 'environments = [{id = "Ant-v5", kwargs = {frame_skip = 2}}'
        with_kwargs = GRID.replace('environments = ["Pendulum-v1"', given)
        self.begin(folder, make_cells(study_of(with_kwargs))[0], 100)
        without = study_of(with_kwargs.replace(", kwargs = {frame_skip = 2}", ""))
        with pytest.raises(
            UserError, match=r"started with frame_skip = 2, but the study says None"
        ):
            folder.check_runs(make_cells(without))

    @pytest.mark.parametrize(
        ("environments", "message"),
        [
            ('["CartPole-v1"]', r"mine\.toml:12: .*CartPole-v1 has discrete actions"),
            ('[{id = "Ant-v5", kwargs = {gg = 3}}]', r"mine\.toml:4: .*argument 'gg'"),
        ],
    )
    def test_environments_are_tried_before_anything_runs(self, environments, message):
        grid = GRID[: GRID.index("[paper")]
        study = study_of(re.sub("environments = .*", f"environments = {environments}", grid))
        with pytest.raises(UserError, match=message):
            check_environments(study, make_cells(study))

    def test_a_damaged_failure_is_still_a_failure(self, tmp_path):
        (tmp_path / "x.json").write_text("{")
        assert "cannot be read" in read_failure(tmp_path / "x.json").error
