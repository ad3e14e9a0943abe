"""Studies whose cells run on a Ray cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.folder import StudyFolder
from tests.helpers import processes_below, record
from tests.study.test_scheduler import TWO_CELLS

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("turn_on_ray")]


def run_study(toml: Path, out: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "p3s", "study", "run", str(toml), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def toml(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("definition") / "small.toml"
    file.write_text(TWO_CELLS)
    return file


@pytest.fixture(scope="module")
def expected(toml, tmp_path_factory) -> dict[str, dict]:
    """What the study gives on this machine without Ray."""
    out = tmp_path_factory.mktemp("local") / "study"
    process = run_study(toml, out)
    assert process.wait(600) == 0
    return {run.name: record(run) for run in sorted((out / "runs").iterdir())}


def results(out: Path) -> dict[str, dict]:
    return {run.name: record(run) for run in sorted((out / "runs").iterdir())}


def wait_for_checkpoint(out: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not list(out.glob("runs/*/checkpoints/step-*")):
        time.sleep(0.05)


def test_cells_on_ray_are_those_of_this_machine(toml, expected, tmp_path):
    process = run_study(toml, tmp_path / "study", "--engine", "ray")
    assert process.wait(600) == 0
    assert results(tmp_path / "study") == expected


def test_a_lost_cell_continues(toml, expected, tmp_path):
    process = run_study(toml, tmp_path / "study", "--engine", "ray")
    wait_for_checkpoint(tmp_path / "study", process)
    for number in processes_below(process.pid, "ray::CellActor"):
        os.kill(number, signal.SIGKILL)
    assert process.wait(600) == 0
    assert results(tmp_path / "study") == expected
    logs = "".join(log.read_text() for log in (tmp_path / "study" / "logs").iterdir())
    assert "the process of this cell is lost" in logs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_and_continued(number, toml, expected, tmp_path):
    process = run_study(toml, tmp_path / "study", "--engine", "ray")
    wait_for_checkpoint(tmp_path / "study", process)
    process.send_signal(number)
    assert process.wait(120) in (128 + number, -number)
    again = run_study(toml, tmp_path / "study", "--engine", "ray")
    assert again.wait(600) == 0
    assert results(tmp_path / "study") == expected


def test_a_folder_that_is_not_seen_there_is_sent(toml, expected, tmp_path):
    from p3s.study.on_ray import RayLauncher
    from p3s.study.scheduler import Scheduler, SchedulerOptions

    class Silent:
        def event(self, *told): ...
        def refresh(self, *told): ...
        def say(self, *told): ...

    study = find_study(str(toml))
    cells, folder = make_cells(study), StudyFolder(tmp_path / "study")
    folder.write(study, cells)
    launcher = RayLauncher(folder.path, None, 1, 0, 2)
    launcher.close()  # so that nobody finds the token
    assert Scheduler(folder, cells, SchedulerOptions(2), Silent(), launcher).run() == 0
    assert results(tmp_path / "study") == expected
    assert all((log.stat().st_size > 0) for log in (tmp_path / "study" / "logs").iterdir())
