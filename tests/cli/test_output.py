"""A training does not end because nobody reads its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from p3s.errors import printable

COMMAND = [sys.executable, "-m", "p3s"]
RUN = [
    "train", "InvertedPendulum-v5", "--hidden-sizes", "8", "--batch-size", "8", "--initial-steps",
    "20", "--evaluation-episodes", "1", "--evaluation-workers", "0", "--review-period", "25",
    "--checkpoint-period", "0", "--no-report",
]  # fmt: skip


def training(folder: Path, steps: int, evaluation_period: int) -> list[str]:
    """The command of a small run."""
    options = ["--steps", steps, "--evaluation-period", evaluation_period, "--out", folder]
    return [*COMMAND, *RUN, *map(str, options)]


def test_a_reader_that_goes_away_ends_no_training(tmp_path):
    words = training(tmp_path, steps=1000, evaluation_period=100)
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(200) == 0
    assert (tmp_path / "checkpoints" / "step-000000001000").exists()


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_letters_that_cannot_be_shown_end_nothing(tmp_path, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    words = training(tmp_path, steps=600, evaluation_period=200)
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    watched = [*COMMAND, "watch", "--once", tmp_path]
    done = subprocess.run(watched, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_signal_is_heard_where_nobody_reads(tmp_path):
    """As in `p3s train ... 2>&1 | tee log`, where Ctrl-C ends the reader too."""
    words = training(tmp_path, steps=400000, evaluation_period=0)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    limit = time.monotonic() + 100
    while not (tmp_path / "metrics.jsonl").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(100) == 130
    assert list((tmp_path / "checkpoints").glob("step-*"))


def test_a_list_that_nobody_reads_ends_quietly():
    done = subprocess.run(
        f"{' '.join(COMMAND)} algorithms | true", shell=True, capture_output=True, check=False
    )
    assert b"Traceback" not in done.stderr


def test_what_would_steer_a_terminal_is_replaced():
    assert printable("a\x1b[2Jb\x07\nc\td") == "a�[2Jb�\nc\td"
