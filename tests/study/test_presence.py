"""Schedulers that share a folder notice each other where locks do not work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from p3s.errors import UserError
from p3s.study import presence
from p3s.study.presence import MACHINE, PREFIX, Presence


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A study's folder, in which nobody is watched for long."""
    monkeypatch.setattr(presence, "WATCH_SECONDS", 1.0)
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.05)
    (tmp_path / "locks").mkdir()
    return tmp_path


@pytest.fixture
def broken_locks():
    """Locks always succeed, as on some network file systems."""
    with patch("p3s.runs.locks._lock", lambda descriptor, shared: True):
        yield


def files(folder: Path) -> list[Path]:
    """What schedulers have left."""
    return list((folder / "locks").iterdir())


def left_behind(folder: Path, machine: str, process: int) -> Path:
    """The file of a scheduler that was killed."""
    file = folder / "locks" / f"{PREFIX}ffff"
    file.write_text(json.dumps({"machine": machine, "process": process, "count": 3}))
    return file


def at_work(folder: Path, seconds: float, refused: list[str], begun: threading.Event) -> None:
    """Be a scheduler for a while, or note why not."""
    try:
        with Presence(folder) as own:
            begun.set()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                own.beat()
                time.sleep(0.01)
    except UserError as error:
        refused.append(str(error))


def test_locks_that_work_keep_schedulers_apart(folder):
    with Presence(folder), Presence(folder):
        assert len(files(folder)) == 2
    assert files(folder) == []


def test_the_second_is_refused_where_they_do_not(folder, broken_locks):
    begun = threading.Event()
    first = threading.Thread(target=at_work, args=(folder, 3.0, [], begun))
    first.start()
    assert begun.wait(10)
    process = rf"process {os.getpid()}\), and locks do not work there"
    with pytest.raises(UserError, match=process), Presence(folder):
        pytest.fail("two are at work")
    first.join()
    assert files(folder) == []


def test_of_two_at_the_same_moment_one_goes_on(folder, broken_locks):
    refused, begun = list[str](), threading.Event()
    both = [threading.Thread(target=at_work, args=(folder, 4.0, refused, begun)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert begun.is_set()
    assert len(refused) == 1
    assert files(folder) == []


def test_a_killed_one_is_no_hindrance(folder):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file = left_behind(folder, MACHINE, gone.pid)
    began = time.monotonic()
    with Presence(folder):
        assert not file.exists()
    # Of this machine it is known at once; this process lives, but writes nothing there.
    assert time.monotonic() - began < 0.5
    for machine, process in (("elsewhere 1", 1), (MACHINE, os.getpid())):
        file = left_behind(folder, machine, process)
        with Presence(folder):
            assert not file.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"machine": 7, "process": "x"}'])
def test_a_strangers_file_is_no_hindrance(folder, content):
    (folder / "locks" / f"{PREFIX}x").write_bytes(content)
    (folder / "locks" / f"{PREFIX}y").symlink_to(folder / "elsewhere")
    with Presence(folder):
        assert not (folder / "elsewhere").exists()
