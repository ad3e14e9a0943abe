"""Run folders where locks are refused, or succeed without meaning anything."""

from __future__ import annotations

import errno
import os

import pytest

from p3s.errors import TrainingStopped, UserError
from p3s.runs import opening
from p3s.runs.locks import try_lock
from tests.helpers import small_config


def refuse(descriptor: int, shared: bool) -> bool:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("p3s.runs.locks._lock", refuse)
    with pytest.raises(UserError, match=r"cannot be locked \(No locks available\)"):
        try_lock(tmp_path / "lock")
    with pytest.raises(UserError, match="a folder on a disk of this machine"):
        opening.begin(small_config(), tmp_path / "run")


def test_a_process_that_was_overtaken_writes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("p3s.runs.locks._lock", lambda descriptor, shared: True)
    first = opening.begin(small_config(steps=400, checkpoint_period=100), tmp_path / "run")
    first.run(400, callback=lambda now: now.total_steps < 150)
    second, _ = opening.reopen(tmp_path / "run")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(TrainingStopped, match="another process has begun to write to"):
        first.run(400)
    first.close()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    second.close()


def test_of_two_that_begin_at_once_one_is_told(tmp_path):
    first = opening.begin(small_config(), tmp_path / "run")
    (tmp_path / "run" / "config.json").rename(tmp_path / "config.json")  # not written yet
    for stream in ("metrics", "evaluations", "lineage"):
        (tmp_path / "run" / f"{stream}.jsonl").unlink()
    with pytest.raises(UserError, match="is in use: another process trains this run"):
        opening.begin(small_config(), tmp_path / "run")
    first.close()
