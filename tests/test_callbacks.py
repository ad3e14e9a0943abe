"""Callbacks: at which events they are asked, what stops a run, and that a resume knows of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import p3s
from p3s.callbacks import (
    Callback,
    EvaluateOn,
    Metrics,
    RecordVideo,
    StopAt,
    StopWithoutImprovement,
)
from p3s.errors import TrainingStopped, UserError
from p3s.runs import opening
from p3s.runs.records import read_rows
from tests.helpers import SMALL, call, record, small_config

STEPS = 1200


class Events(Callback):
    def __init__(self):
        self.seen = []

    def on_step(self, training):
        self.seen.append(("step", training.total_steps))

    def on_review(self, training, row):
        self.seen.append(("review", row["step"]))

    def on_evaluation(self, training, row):
        self.seen.append(("evaluation", row["step"]))

    def on_checkpoint(self, training):
        self.seen.append(("checkpoint", training.total_steps))

    def on_end(self, training):
        self.seen.append(("end", training.total_steps))

    def steps_of(self, event):
        return [step for name, step in self.seen if name == event]


def rows(*returns):
    return [{"champion_return": value} for value in returns]


class TestRules:
    def test_a_threshold_is_reached_by_any_evaluation(self):
        assert StopAt(10.0).is_met(rows(3.0, 10.0, 4.0))
        assert not StopAt(10.0).is_met(rows(3.0, None, 9.9))
        assert not StopAt(10.0).is_met([])

    def test_patience_counts_evaluations_since_the_best(self):
        rule = StopWithoutImprovement(2)
        assert not rule.is_met([])
        assert not rule.is_met(rows(None))
        assert not rule.is_met(rows(1.0, 5.0, 4.0))
        assert rule.is_met(rows(1.0, 5.0, 4.0, 5.0))  # as good is not better
        assert not rule.is_met(rows(1.0, 5.0, 4.0, 6.0))

    def test_bad_numbers(self):
        with pytest.raises(UserError, match="patience must be at least 1, not 0"):
            StopWithoutImprovement(0)
        with pytest.raises(UserError, match="every must be at least 1"):
            Metrics(lambda training: {}, every=0)


@pytest.fixture(scope="module")
def population():
    return p3s.Population("InvertedPendulum-v5", seed=1, **SMALL)


def test_events_numbers_of_ones_own_and_a_stop(population):
    events, measured = Events(), []
    count = Metrics(lambda training: measured.append(training.total_steps) or {}, every=100)
    population.learn(400, [events, count], progress_bar=False)
    steps = events.steps_of("step")
    assert steps == list(range(4, 401, 4))
    assert events.steps_of("review") == list(range(100, 401, 100))
    assert events.steps_of("evaluation") == [200, 400]
    assert events.steps_of("end") == [400]
    assert measured == [100, 200, 300, 400]
    before = len(events.seen)
    population.learn(400, StopAt(-1.0), progress_bar=False)  # met at the next evaluation
    assert population.num_steps == 600
    assert len(events.seen) == before  # it was a callback of the other call


def test_a_population_keeps_what_is_recorded(tmp_path):
    population = p3s.Population("InvertedPendulum-v5", **{**SMALL, "evaluation_period": 0})
    half = Metrics(lambda training: {"half": np.float32(training.total_steps / 2)}, every=20)
    population.learn(40, half, progress_bar=False)
    expected = [{"step": 20, "half": 10.0}, {"step": 40, "half": 20.0}]
    assert population.scalars == expected
    population.save(tmp_path)
    written = [json.loads(line) for line in (tmp_path / "scalars.jsonl").read_text().splitlines()]
    assert [(row["step"], row["half"]) for row in written] == [(20, 10.0), (40, 20.0)]
    again = p3s.Population.load(tmp_path)
    assert again.scalars == expected
    again.learn(20, half, progress_bar=False)
    assert [row["step"] for row in again.scalars] == [20, 40, 60]


def test_an_exception_stops_the_run_and_names_the_callback(population):
    class Broken(Callback):
        def on_step(self, training):
            raise RuntimeError("no more ink")

    with pytest.raises(TrainingStopped, match="Broken raised RuntimeError: no more ink"):
        population.learn(100, Broken(), progress_bar=False)


def test_callbacks_move_no_bits_and_their_rows_survive_a_kill(tmp_path):
    config = small_config(steps=800, checkpoint_period=100)

    def training_at(path, **options):
        training = opening.begin(config, path)
        training.callbacks.append(Metrics(lambda now: {"mine": now.total_steps / 2}, every=100))
        return training

    whole = training_at(tmp_path / "whole")
    whole.run(800)
    whole.close()
    killed = training_at(tmp_path / "killed")
    killed.run(800, callback=lambda now: now.total_steps < 330)
    killed.close()
    resumed, _ = opening.reopen(tmp_path / "killed")
    resumed.callbacks.append(Metrics(lambda now: {"mine": now.total_steps / 2}, every=100))
    resumed.run(800)
    resumed.close()
    plain = opening.begin(config, tmp_path / "plain")
    plain.run(800)
    plain.close()
    found = read_rows(tmp_path / "killed" / "scalars.jsonl")
    assert [row["step"] for row in resumed.scalars] == list(range(100, 801, 100))
    assert [(row["step"], row["mine"]) for row in found] == [
        (step, step / 2) for step in range(100, 801, 100)
    ]
    assert record(tmp_path / "killed") == record(tmp_path / "whole")
    without = {name: rows for name, rows in record(tmp_path / "whole").items() if name != "scalars"}
    assert without == record(tmp_path / "plain")


def test_other_environments_and_films(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    fields = {**SMALL, "evaluation_period": 0}
    population = p3s.Population("Pendulum-v1", **fields)
    other = EvaluateOn("Pendulum-v1", every=200, episodes=1, name="other")
    found = []
    population.training.record = found.append
    population.learn(400, [other, RecordVideo(200, tmp_path)], progress_bar=False)
    assert [list(row) for row in found] == [["eval_on/other"]] * 2
    films = sorted(path.name for path in tmp_path.iterdir())
    assert films == ["step-200.mp4", "step-400.mp4"]


@pytest.mark.parametrize(
    ("option", "reason"),
    [(("--stop-at", "0"), "reached 0"), (("--patience", "1"), "no improvement in 1 evaluations")],
)
def test_on_the_command_line_and_resumed_with_more_steps(
    option, reason, tmp_path, capsys, run_arguments
):
    path = tmp_path / "run"
    words = ["InvertedPendulum-v5", *run_arguments, "--steps", STEPS, "--out", path, *option]
    code, output, errors = call(capsys, "train", *words, "--no-report")
    assert code == 0, errors
    assert reason in output
    stopped_at = read_rows(path / "evaluations.jsonl")[-1]["step"]
    assert f"stopped at step {stopped_at:,}: " in output
    assert stopped_at < STEPS
    code, output, errors = call(capsys, "resume", path, "--no-report")
    assert code == 0, errors
    assert "going on without it" in output
    assert read_rows(path / "evaluations.jsonl")[-1]["step"] == STEPS


def test_stopping_needs_evaluations(capsys):
    words = ["Pendulum-v1", "--stop-at", "3", "--evaluation-period", "0"]
    code, _, errors = call(capsys, "train", *words)
    assert code == 2
    assert "stop_at and patience need evaluations: evaluation_period" in errors
