"""Loggers: one run is one run there, killed and resumed or not; read back from their own stores."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.loggers import base, make_loggers
from p3s.runs.loggers.base import Logger, known_as, package, remember
from p3s.runs.loggers.scalars import scalars_of
from p3s.runs.records import read_rows
from tests.helpers import call, p3s_process, small_config

STREAMS = ("metrics", "evaluations", "lineage")
STEPS = 4000


class Kept(Logger):
    """Keeps rows, as a tool would; some of them before this process."""

    name = "kept"

    def __init__(self, before=()):
        self.before, self.sent_rows, self.flushed = dict(before), [], 0

    def open(self, path, config, rows, step):
        return self.before

    def write(self, stream, number, row):
        self.sent_rows.append((stream, number, row["step"]))

    def flush(self):
        self.flushed += 1


def run_with(logger, path, monkeypatch, until=400, resumed=False):
    monkeypatch.setattr("p3s.runs.records.make_loggers", lambda names: [logger])
    config = small_config(steps=400, checkpoint_period=100)
    training = opening.reopen(path)[0] if resumed else opening.begin(config, path)
    training.run(400, callback=lambda now: now.total_steps < until)
    training.close()


def test_what_a_tool_has_is_not_sent_again_and_what_it_lacks_is(tmp_path, monkeypatch):
    first = Kept()
    run_with(first, tmp_path / "run", monkeypatch, until=270)
    rows = [row for row in first.sent_rows if row[0] == "metrics"]
    assert rows == [("metrics", 1, 100), ("metrics", 2, 200)]
    # The tool lost the last row of metrics, and has a row of lineage beyond the checkpoint.
    lineages = [number for stream, number, _ in first.sent_rows if stream == "lineage"]
    again = Kept({"metrics": 1, "lineage": lineages[-1]})
    run_with(again, tmp_path / "run", monkeypatch, resumed=True)
    assert [row for row in again.sent_rows if row[0] == "metrics"] == [
        ("metrics", 2, 200), ("metrics", 3, 300), ("metrics", 4, 400)
    ]  # fmt: skip
    sent = [number for stream, number, _ in again.sent_rows if stream == "lineage"]
    assert sent == list(range(lineages[-1] + 1, len(read_rows(tmp_path / "run/lineage.jsonl")) + 1))
    assert again.flushed > 0


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    class Fails(Kept):
        def write(self, stream, number, row):
            raise ConnectionError("no route")

    run_with(Fails(), tmp_path / "run", monkeypatch)
    assert capsys.readouterr().err == "note: kept stopped logging: ConnectionError: no route\n"
    assert read_rows(tmp_path / "run/evaluations.jsonl")[-1]["step"] == 400


def test_names_and_extras(tmp_path, capsys):
    with pytest.raises(UserError, match="unknown logger 'wandbb': did you mean wandb"):
        make_loggers(["wandbb"])
    needed = r"--loggers nothing needs nothing: pip install 'p3s\[it\]'"
    with pytest.raises(UserError, match=needed):
        package("nothing.here", "it")
    code, _, errors = call(capsys, "train", "Pendulum-v1", "--tensorboard")
    assert code == 2
    assert "--tensorboard is now --loggers tensorboard" in errors


def test_the_loggers_of_older_runs():
    assert opening.loggers_of({"tensorboard": True}) == ["tensorboard"]
    assert opening.loggers_of({"log": ["csv"]}) == ["csv"]
    assert opening.loggers_of({"loggers": ["csv", "wandb"]}) == ["csv", "wandb"]


def test_names_in_tools_are_kept_in_the_folder(tmp_path):
    assert known_as(tmp_path, "one") is None
    remember(tmp_path, "one", "a")
    remember(tmp_path, "two", "b")
    assert (known_as(tmp_path, "one"), known_as(tmp_path, "two")) == ("a", "b")
    (tmp_path / base.FILE).write_text("[3")
    assert known_as(tmp_path, "one") is None


def test_csv(tmp_path):
    path = tmp_path / "run"
    config = small_config(steps=400, checkpoint_period=100)
    training = opening.begin(config, path, loggers=["csv"])
    training.run(400, callback=lambda now: now.total_steps < 270)
    training.close()
    training, _ = opening.reopen(path)
    training.run(400)
    training.close()
    for stream in STREAMS:
        with (path / "csv" / f"{stream}.csv").open() as file:
            table = list(csv.DictReader(file))
        rows = read_rows(path / f"{stream}.jsonl")
        assert [int(line["step"]) for line in table] == [row["step"] for row in rows]
        for line, row in zip(table, rows, strict=True):
            expected = scalars_of(stream, row)
            assert {tag: float(line[tag]) for tag in expected} == expected


def killed_and_resumed(path: Path, run_arguments: list[str], logger: str) -> None:
    """A run that is killed after a checkpoint and some rows more, and resumed to its end."""
    words = ["train", "InvertedPendulum-v5", *run_arguments, "--steps", STEPS, "--out", path]
    process = p3s_process(*words, "--loggers", logger)
    limit = time.monotonic() + 200
    file = path / "metrics.jsonl"
    while not file.exists() or file.read_bytes().count(b"\n") < 12:
        assert time.monotonic() < limit
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(5)  # a tool's own process may have something left to write
    process = p3s_process("resume", path)
    assert process.wait(300) == 0, process.stderr.read()


def expected_points(path: Path) -> Counter:
    return Counter(
        (tag, row["step"], value)
        for stream in STREAMS
        for row in read_rows(path / f"{stream}.jsonl")
        for tag, value in scalars_of(stream, row).items()
        if not tag.startswith("time/")
    )


@pytest.mark.slow
def test_wandb_offline_killed_and_resumed(tmp_path, monkeypatch, run_arguments):
    pytest.importorskip("wandb")
    from p3s.runs.loggers.wandb_logger import history_of

    monkeypatch.setenv("WANDB_MODE", "offline")
    path = tmp_path / "run"
    killed_and_resumed(path, run_arguments, "wandb")
    name = known_as(path, "wandb")
    folders = [folder.name for folder in (path / "wandb").glob("offline-run-*")]
    assert len(folders) == 2
    assert all(folder.endswith(name) for folder in folders)
    history = list(history_of(path, name))
    assert [values["_step"] for values in history] == list(range(len(history)))
    found = Counter(
        (tag, values["step"], value)
        for values in history
        for tag, value in values.items()
        if tag.partition("/")[0] not in ("rows", "time", "step", "_step", "_timestamp", "_runtime")
    )
    assert found == expected_points(path)


@pytest.mark.slow
def test_wandb_out_of_reach_is_logged_offline(tmp_path, monkeypatch, capfd, run_arguments):
    pytest.importorskip("wandb")
    from p3s.runs.loggers.wandb_logger import rows_in_files

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    path = tmp_path / "run"
    words = ["train", "InvertedPendulum-v5", *run_arguments, "--steps", "400", "--out", path]
    assert p3s_process(*words, "--loggers", "wandb").wait(300) == 0
    errors = capfd.readouterr().err
    assert errors.count("note:") == 1
    assert "W&B cannot be reached" in errors
    rows = rows_in_files(path, known_as(path, "wandb"))
    assert rows == {name: len(read_rows(path / f"{name}.jsonl")) for name in rows}
    assert rows.keys() >= {"metrics", "evaluations"}


@pytest.mark.slow
def test_mlflow_killed_and_resumed(tmp_path, monkeypatch, run_arguments):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    path = tmp_path / "run"
    killed_and_resumed(path, run_arguments, "mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("p3s")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == known_as(path, "mlflow")
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.batch_size"] == "8"
    found = Counter(
        (metric.key, metric.step, metric.value)
        for tag in run.data.metrics
        if tag.partition("/")[0] not in ("rows", "time")
        for metric in client.get_metric_history(run.info.run_id, tag)
    )
    assert found == expected_points(path)
    artifacts = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert {"evaluations.csv", "lineage.csv", "report.html"} <= artifacts


@pytest.mark.slow
def test_trackio_killed_and_resumed(tmp_path, monkeypatch, run_arguments):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    path = tmp_path / "run"
    killed_and_resumed(path, run_arguments, "trackio")
    # The store's place is read when trackio is imported: ask a process of its own.
    code = (
        "import json, sys, trackio; store = trackio.SQLiteStorage; "
        "print(json.dumps([store.get_runs('p3s'), store.get_logs('p3s', sys.argv[1])]))"
    )
    asked = [sys.executable, "-c", code, known_as(path, "trackio")]
    runs, logs = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    assert runs == [known_as(path, "trackio")]
    found = Counter(
        (tag, values["step"], value)
        for values in logs
        for tag, value in values.items()
        if tag.partition("/")[0] not in ("rows", "time", "table", "step", "timestamp")
    )
    assert found == expected_points(path)
    assert {tag for values in logs for tag in values} >= {"table/evaluations", "table/lineage"}
    assert list((tmp_path / "store" / "artifacts").rglob("*"))


def test_a_page_is_written_before_the_loggers_close(tmp_path, monkeypatch, capsys, run_arguments):
    seen = []

    class Looks(Kept):
        def close(self, path):
            seen.append((path / "report.html").exists())

    monkeypatch.setattr("p3s.runs.records.make_loggers", lambda names: [Looks()])
    words = ["InvertedPendulum-v5", *run_arguments, "--steps", "200", "--out", tmp_path / "run"]
    assert call(capsys, "train", *words)[0] == 0
    assert seen == [True]
