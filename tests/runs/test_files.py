"""Files that cannot be written, and folders that are replaced: what a user is told and keeps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.errors import TrainingStopped
from p3s.runs import files, opening
from p3s.runs.files import Disk
from tests.helpers import SMALL, call, record, resume, run


class Full(Disk):
    """A disk on which a file of this name finds no room."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, path: Path, data) -> None:
        if self._name in path.name:
            path.write_bytes(bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(path, data)


class Stopped(BaseException):
    """The end of the process."""


class TestFullDisk:
    def test_the_command_says_what_failed_and_how_to_go_on(
        self, tmp_path, capsys, monkeypatch, run_arguments
    ):
        arguments = ["train", "InvertedPendulum-v5", "--steps", "600", "--no-report"]
        arguments += run_arguments
        assert call(capsys, *arguments, "--out", tmp_path / "whole")[0] == 0
        path = tmp_path / "run"
        with monkeypatch.context() as patch:
            patch.setattr(files, "disk", Full("replay-"))
            code, _, errors = call(capsys, *arguments, "--out", path)
        assert code == 2
        (line,) = errors.strip().split("\n")
        assert line.startswith("p3s: at total step 152: cannot write ")
        assert str(path / "checkpoints" / ".tmp-step-000000000152" / "replay-00000.bin") in line
        assert line.endswith("No space left on device: make room on the disk")
        assert list((path / "checkpoints").iterdir()) == []
        assert call(capsys, "resume", path, "--no-report")[0] == 0
        assert record(path) == record(tmp_path / "whole")

    def test_the_last_checkpoint_is_kept(self, tmp_path, monkeypatch):
        run(tmp_path / "whole")
        run(tmp_path / "run", until=330)
        training, _ = opening.reopen(tmp_path / "run")
        monkeypatch.setattr(files, "disk", Full("policy.safetensors"))
        with pytest.raises(TrainingStopped, match=r"cannot write .*policy\.safetensors: No space"):
            training.run(800)
        training.close()
        monkeypatch.undo()
        assert not list((tmp_path / "run").glob("*.tmp"))
        assert resume(tmp_path / "run") == []
        assert record(tmp_path / "run") == record(tmp_path / "whole")

    def test_a_folder_that_cannot_be_made(self, tmp_path, capsys):
        (tmp_path / "file").write_text("")
        code, _, errors = call(
            capsys, "train", "Pendulum-v1", "--steps", "100", "--out", tmp_path / "file" / "run"
        )
        assert (code, errors.count("\n")) == (2, 1)
        assert f"cannot make {tmp_path / 'file'}: " in errors


def test_a_kill_while_saving_over_a_save_loses_neither(tmp_path, monkeypatch):
    """The folder holds the population that was saved there, or the new one, whenever it ends."""
    made = []
    for seed in (1, 2):
        population = p3s.Population("Pendulum-v1", seed=seed, **SMALL)
        made.append(population.learn(200, progress_bar=False))
    observation = np.full((10, 3), 0.3, np.float32)
    expected = [population.predict(observation)[0].tolist() for population in made]
    renames = {name: getattr(os, name) for name in ("rename", "replace")}
    for kill_at in range(10):
        path, seen = tmp_path / f"saved-{kill_at}", []
        made[0].save(path)

        def renamed(name, *places, seen=seen, kill_at=kill_at):
            seen.append(places)
            if len(seen) == kill_at + 1:
                raise Stopped
            renames[name](*places)

        with monkeypatch.context() as patch:
            for name in renames:
                patch.setattr(os, name, lambda *places, name=name: renamed(name, *places))
            try:
                made[1].save(path)
            except Stopped:
                pass
            else:
                assert len(seen) == kill_at
                break
        found = p3s.Population.load(path).predict(observation)[0].tolist()
        assert found in expected
    assert kill_at >= 4
    assert p3s.Population.load(path).predict(observation)[0].tolist() == expected[1]
