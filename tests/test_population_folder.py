"""A population with a run folder: what `p3s train` writes, and how it is continued from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from p3s import Population, UserError
from p3s.runs.records import read_config, read_rows
from tests.helpers import SMALL, Counter, call

FIELDS = {**SMALL, "checkpoint_period": 150}
WITH_TIME = ("seconds", "steps_per_second")


def rows_of(path: Path) -> dict[str, list]:
    """The rows of a run, without what time took."""
    found = {file.name: read_rows(file) for file in path.glob("*.jsonl")}
    return {
        name: [{k: v for k, v in row.items() if k not in WITH_TIME} for row in rows]
        for name, rows in found.items()
    }


def names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def test_it_gets_what_p3s_train_writes_and_load_continues(tmp_path, run_arguments, capsys):
    by_command, by_python = tmp_path / "command", tmp_path / "python"
    given = [*run_arguments, "--out", str(by_command), "--loggers", "csv"]
    assert call(capsys, "train", "Pendulum-v1", *given, "--steps", "400")[0] == 0
    with Population("Pendulum-v1", out=by_python, loggers=["csv"], **FIELDS) as population:
        population.learn(400, progress_bar=False)
        assert population.folder == by_python
        with pytest.raises(UserError, match="is in use"):
            Population.load(by_python).learn(4)
    assert names(by_python) == names(by_command) >= {"report.html", "policy-best.safetensors"}
    assert rows_of(by_python) == rows_of(by_command)
    before = read_config(by_python)
    assert before["steps"] == 400
    assert before["loggers"] == ["csv"]

    assert call(capsys, "resume", str(by_command), "--steps", "600")[0] == 0
    with Population.load(by_python) as again:
        assert again.folder is None  # nothing is claimed to look at it
        again.learn(200, progress_bar=False)
    assert rows_of(by_python) == rows_of(by_command)
    assert read_config(by_python)["steps"] == 600
    assert names(by_python / "checkpoints") == names(by_command / "checkpoints")
    tables = [(path / "csv" / "metrics.csv").read_text() for path in (by_python, by_command)]
    assert tables[0].count("\n") == tables[1].count("\n") == 7
    assert call(capsys, "report", str(by_python))[0] == 0
    with pytest.raises(UserError, match=r"holds a run already.*Population\.load"):
        Population("Pendulum-v1", out=by_python, **FIELDS)


def test_other_values_and_a_folder_that_is_left_alone(tmp_path):
    run = tmp_path / "run"
    with Population("Pendulum-v1", out=run, **FIELDS) as population:
        population.learn(200, progress_bar=False)
    rows, config = rows_of(run), (run / "config.json").read_bytes()
    alone = Population.load(run, record=False, learning_rate=0.1)
    alone.learn(40, progress_bar=False)
    assert rows_of(run) == rows
    assert (run / "config.json").read_bytes() == config

    late = Population.load(run)
    with Population.load(run, learning_rate=0.1, metrics_period=50) as changed:
        changed.learn(40, progress_bar=False)
    assert read_config(run)["algorithm_fields"]["learning_rate"] == 0.1
    assert [row["step"] for row in rows_of(run)["metrics.jsonl"]] == [100, 200, 240]
    other = changed.get_parameters()
    assert all((alone.get_parameters()[name] == other[name]).all() for name in other)
    with pytest.raises(UserError, match="has gone on since it was loaded"):
        late.learn(4)


def test_an_environment_of_ones_own_keeps_its_folder(tmp_path, capsys):
    fields = {**FIELDS, "evaluation_period": 0, "initial_steps": 90}  # nothing to compile
    with Population(Counter, out=tmp_path / "run", **fields) as population:
        population.learn(40, progress_bar=False)
    with Population.load(tmp_path / "run", env=Counter) as again:
        assert again.learn(40, progress_bar=False).num_timesteps == 80
    assert json.loads((tmp_path / "run" / "config.json").read_text())["environment"] is None
    code, _, error = call(capsys, "resume", str(tmp_path / "run"))
    assert (code, "Population.load(path, env=...)" in error) == (2, True)


def test_the_traceback_of_an_environment_is_kept(tmp_path):
    class Broken(Exception):
        pass

    class Breaks(Counter):
        def step(self, action):
            raise Broken("on purpose")

    population = Population(Breaks, out=tmp_path / "run", **FIELDS)
    with population, pytest.raises(UserError, match="on purpose"):
        population.learn(40, progress_bar=False)
    assert "on purpose" in (tmp_path / "run" / "traceback.txt").read_text()


def test_loggers_need_a_folder():
    with pytest.raises(UserError, match=r"give one, out='runs/name'"):
        Population("Pendulum-v1", loggers=["csv"])
    with pytest.raises(UserError, match="loggers: expected a list, each text"):
        Population("Pendulum-v1", out="x", loggers="csv")
