"""Studies that run: interrupted and gone on with, shared by two runners, with cells that fail."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.cli import main
from p3s.machine import core_shares
from p3s.runs.opening import load_config
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.folder import StudyFolder
from p3s.study.worker import open_run
from tests.helpers import call, p3s_process, record, small_config, wait_for


def test_every_process_has_equally_many_cores():
    assert core_shares([0, 1, 2, 3], 2) == [[0, 1], [2, 3]]
    assert core_shares([0, 1, 2], 2) == [[0], [1]]
    assert core_shares([4, 5], 3) == [[4], [5], [4]]
    assert core_shares([0, 1, 2], 1) == [[0, 1, 2]]


SMALL = """
hidden_sizes = [16, 16]
batch_size = 8
initial_steps = 20
review_period = 25
buffer_size = 1000
evaluation_period = 500
evaluation_episodes = 2
metrics_period = 100
checkpoint_period = 150
"""

TWO_CELLS = f"""
steps = 1500
seeds = 1
environments = ["InvertedPendulum-v5"]
[fields]{SMALL}
[grid]
scheme = ["p3s", "single"]
"""

OUTSIDE = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
import gymnasium
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from p3s.algorithms import TD3
from p3s.plugins.loading import register

@register
@dataclass(frozen=True, kw_only=True)
class Mine(TD3):
    name: ClassVar[str] = "mine"

class Broken(InvertedPendulumEnv):
    count = 0
    def step(self, action):
        self.count += 1
        if self.count == 30 and not Path(__file__).with_name("mended").exists():
            raise RuntimeError("a joint <broke>")
        return super().step(action)

gymnasium.register("Broken-v0", Broken, max_episode_steps=1000)
"""
"""A module of a user: an algorithm, and an environment that raises at its 30th step, unless a file
beside it says that it was mended."""


def write_study(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def records(out: Path) -> dict[str, dict]:
    return {cell.id: record(out / "runs" / cell.id) for cell in cells_of(out)}


def cells_of(out: Path) -> list:
    return make_cells(find_study(str(out)))


def workers(out: Path) -> list[int]:
    """Process ids of the cells that run."""
    folder = StudyFolder(out)
    running = [cell for cell in cells_of(out) if folder.is_locked(cell)]
    return [int((out / "locks" / cell.id).read_text() or 0) for cell in running]


def kill_all(process, out: Path) -> None:
    """SIGKILL for the scheduler and for every process that it started."""
    found = workers(out)
    assert found
    process.kill()
    process.wait()
    for worker in found:
        os.kill(worker, signal.SIGKILL)
    while workers(out):
        time.sleep(0.01)


def starts(out: Path) -> list[str]:
    """What every start of a cell wrote into its log."""
    logs = [log.read_text().split("\n") for log in (out / "logs").iterdir()]
    return [line for log in logs for line in log if line.startswith("from step")]


def run_here(*arguments) -> int:
    """Exit code of `p3s study run` with its scheduler in this process."""
    with pytest.raises(SystemExit) as ended:
        main(["study", "run", *map(str, arguments)])
    return ended.value.code


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A study that two runners shared, and nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    arguments = [write_study(folder, TWO_CELLS), "--out", folder / "out", "--jobs", 2]
    other = p3s_process("study", "run", *arguments)
    wait_for(folder / "out" / "cells.json", other)
    assert run_here(*arguments) == 0
    assert other.wait() == 0
    return folder / "out"


def test_two_runners_run_nothing_twice(whole):
    assert starts(whole) == ["from step 0 to 1,500"] * 2
    assert not list((whole / "failures").iterdir())


def test_a_complete_study_starts_nothing(whole, capsys):
    code, output, _ = call(capsys, "study", "run", whole, "--jobs", 2)
    assert code == 0
    assert "2 cells: 2 complete" in output
    assert len(starts(whole)) == 2
    code, output, _ = call(capsys, "study", "status", whole)
    assert code == 0
    assert "1,500/1,500" in output


def test_the_folder_says_what_it_holds(whole):
    content = json.loads((whole / "cells.json").read_text())
    assert (content["study"], content["steps"]) == ("mine", 1500)
    assert [cell["method"] for cell in content["cells"]] == ["p3s-td3", "td3"]
    for cell in content["cells"]:
        config = json.loads((whole / cell["run"] / "config.json").read_text())
        assert (config["steps"], config["seed"]) == (1500, cell["seed"])
    (reference,) = StudyFolder(whole).references().values()
    assert len(reference.returns["idle"]) == 10


def test_stopped_then_killed_equals_whole(tmp_path, whole):
    study, out = write_study(tmp_path, TWO_CELLS), tmp_path / "out"
    name = "p3s-td3_invertedpendulum-v5_seed0"
    arguments = ["--only", "scheme=p3s", "--jobs", 2]
    process = p3s_process("study", "run", study, "--out", out, *arguments)
    wait_for(out / "runs" / name / "checkpoints", process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 128 + signal.SIGINT
    assert not workers(out)
    assert not list((out / "failures").iterdir())
    states = [StudyFolder(out).progress(cell).state for cell in cells_of(out)]
    assert states == ["stopped", "waiting"]

    process = p3s_process("study", "run", out, *arguments)
    while process.poll() is None and len(starts(out)) < 2:
        time.sleep(0.01)
    kill_all(process, out)

    assert run_here(out, "--jobs", 2) == 0
    assert records(out) == records(whole)


def test_killed_before_anything_was_kept_begins_anew(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    config = small_config(steps=500)
    for _ in range(2):
        training = open_run(path, config)
        training.close()
        assert training.total_steps == 0
        assert not (path / "metrics.jsonl").read_text()
        assert load_config(path) == config


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module that the scheduler and its workers can import, forgotten after the test."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("outside", None)
    ALGORITHMS.pop("mine", None)
    gymnasium.registry.pop("Broken-v0", None)


@pytest.mark.usefixtures("outside")
def test_a_failing_cell_is_recorded_and_the_rest_completes(tmp_path, capsys):
    study = write_study(
        tmp_path,
        f"""
steps = 300
seeds = 1
environments = ["outside:Broken-v0", "InvertedPendulum-v5"]
[fields]{SMALL}
[[methods]]
label = "Mine"
algorithm = "outside:Mine"
""",
    )
    out, name = tmp_path / "out", "mine_outside-broken-v0_seed0"
    arguments = ["--import", "outside", "study", "run", study, "--out", out, "--jobs", 2]
    code, output, _ = call(capsys, *arguments)
    assert code == 1
    assert "2 cells: 1 failed, 1 complete" in output
    failure = json.loads((out / "failures" / f"{name}.json").read_text())
    assert "a joint <broke>" in failure["error"]
    assert "RuntimeError" in failure["traceback"]
    assert failure["step"] == 29 * 4
    assert failure["time"]

    code, output, _ = call(capsys, *arguments)
    assert code == 1
    assert "a joint <broke>" in output
    assert len(starts(out)) == 2

    (tmp_path / "mended").touch()
    code, output, _ = call(capsys, *arguments, "--retry-failed", "--discard-checkpoints")
    assert code == 0
    assert not list((out / "failures").iterdir())
    assert len(starts(out)) == 3
    assert not (out / "runs" / name / "checkpoints").exists()
    assert call(capsys, *arguments)[0] == 0
    assert len(starts(out)) == 3
    config = json.loads((out / "runs" / name / "config.json").read_text())
    assert (config["algorithm"], config["modules"]) == ("mine", ["outside"])


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("kill -9 $$", "the process was killed by SIGKILL (out of memory?)"),
        ("exit 1", "the process ended with exit code 1"),
    ],
)
def test_a_process_that_dies_without_a_word(tmp_path, monkeypatch, ending, error):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho no memory left\n{ending}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    out = tmp_path / "out"
    assert run_here(write_study(tmp_path, TWO_CELLS), "--out", out, "--jobs", 1) == 1
    for cell in cells_of(out):
        failure = json.loads((out / "failures" / f"{cell.id}.json").read_text())
        assert failure["error"] == error
        assert failure["traceback"] == "no memory left\n"


@pytest.mark.slow
def test_two_schemes_two_environments_two_seeds(tmp_path):
    text = TWO_CELLS.replace("1500", "4000").replace("seeds = 1", "seeds = 2")
    text = text.replace('["InvertedPendulum-v5"]', '["InvertedPendulum-v5", "Pendulum-v1"]')
    study = write_study(tmp_path, text)
    outs = [tmp_path / "whole", tmp_path / "parts"]
    assert p3s_process("study", "run", study, "--out", outs[0]).wait() == 0
    process = p3s_process("study", "run", study, "--out", outs[1])
    wait_for(outs[1] / "runs" / "p3s-td3_pendulum-v1_seed0" / "checkpoints", process)
    kill_all(process, outs[1])
    states = [StudyFolder(outs[1]).progress(cell).state for cell in cells_of(outs[1])]
    assert "stopped" in states
    assert "waiting" in states
    assert p3s_process("study", "run", outs[1]).wait() == 0
    assert records(outs[0]) == records(outs[1])
    assert len(records(outs[0])) == 8
