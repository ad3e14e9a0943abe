"""Worker processes play what this process would have played, to the bit."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from p3s.envs import make_env
from p3s.errors import TrainingStopped
from p3s.evaluation import Evaluator, protocol, queue
from p3s.evaluation.workers import MOST_DEATHS
from p3s.workers.remote import CannotWork, pickled
from tests.helpers import Counter, call, record, resume, run, small_config, small_training, trained


class Stuck(Counter):
    """Never returns from a step, and lets no other thread run meanwhile."""

    def step(self, action):
        Path(os.environ["FOLDER_OF_STUCK"], str(os.getpid())).touch()
        ctypes.PyDLL(None).pause()


gymnasium.register("Counter-v0", Counter)
gymnasium.register("Stuck-v0", Stuck)


def rows(workers: int, **fields) -> list[dict]:
    training = small_training(evaluation_workers=workers, evaluation_episodes=7, **fields)
    training.run(600)
    found = [{k: v for k, v in row.items() if k != "seconds"} for row in training.evaluated]
    training.close()
    return found


@pytest.mark.parametrize(
    "fields", [{}, pytest.param({"scheme": "rollout"}, marks=pytest.mark.slow)], ids=["p3s", "ppo"]
)
def test_rows_do_not_depend_on_the_number_of_workers(fields):
    alone = rows(0, **fields)
    assert [row["step"] for row in alone] == sorted(row["step"] for row in alone)
    assert len(alone) >= 3
    assert rows(1, **fields) == alone
    assert rows(3, **fields) == alone


def test_a_run_killed_and_resumed_with_workers(tmp_path):
    run(tmp_path / "whole", evaluation_workers=0)
    run(tmp_path / "parts", until=450, evaluation_workers=2)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(tmp_path / "whole")


class TestDeaths:
    def test_a_worker_that_dies_is_replaced_and_its_episodes_played_again(self):
        training = trained(300, evaluation_period=0)
        champions = training.crew.champions()
        evaluator = training.evaluations.evaluator
        expected = evaluator.evaluate(champions, (), 1, 40, 300)
        judge = Evaluator(training.make, training.config.algorithm, 0, workers=2)
        pending = judge.begin(champions, (), 1, 40, 300)
        deadline = time.monotonic() + 60
        while not judge.workers.started and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(judge.workers.started[0].process.pid, signal.SIGKILL)
        assert pending.row() == expected
        killed = judge.workers.started[0].process
        os.kill(judge.workers.started[-1].process.pid, signal.SIGKILL)
        assert judge.evaluate(champions, (), 1, 40, 300) == expected
        assert killed.poll() == -signal.SIGKILL
        assert len(judge.workers.started) > 2
        judge.close()
        training.close()

    def test_a_unit_that_kills_every_worker_is_given_up(self, monkeypatch):
        training = small_training()
        judge = Evaluator(training.make, training.config.algorithm, 0, workers=1)
        monkeypatch.setattr("sys.executable", "/bin/false")
        champions = training.crew.champions()
        with pytest.raises(TrainingStopped, match=f"died {MOST_DEATHS} times"):
            judge.evaluate(champions, (), None, 1, 0)
        judge.close()
        training.close()

    def test_a_worker_that_is_stuck_in_c_code_ends_with_the_run(self, monkeypatch, tmp_path):
        """It cannot notice that it was dismissed: no other thread of it runs."""
        training = small_training(f"{__name__}:Counter-v0")
        make = partial(make_env, f"{__name__}:Stuck-v0")
        judge = Evaluator(make, training.config.algorithm, 0, workers=2)
        monkeypatch.setenv("FOLDER_OF_STUCK", str(tmp_path))
        judge.begin(training.crew.champions(), (), 0, 40, 0)
        workers, deadline = judge.workers, time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
        judge.close()
        assert time.monotonic() - began < 5
        assert {worker.process.poll() for worker in workers.started} == {-signal.SIGKILL}
        training.close()

    def test_workers_end_with_the_run(self):
        training = small_training(evaluation_workers=2)
        training.run(300)
        workers = training.evaluations.evaluator.workers.started
        assert workers
        training.close()
        assert all(worker.process.poll() is not None for worker in workers)


def test_what_cannot_be_pickled_is_played_here(capsys):
    local = lambda: make_env("Pendulum-v1")  # noqa: E731
    training = trained(300, env="Pendulum-v1", evaluation_period=0)
    champions = training.crew.champions()
    judge = Evaluator(local, training.config.algorithm, 0, workers=2)
    row = judge.evaluate(champions, (), 1, 2, 300)
    assert row == training.evaluations.evaluator.evaluate(champions, (), 1, 2, 300)
    assert "evaluations are played in this process" in capsys.readouterr().err
    judge.close()
    training.close()


def fails_elsewhere():
    """An environment that only this process can make."""
    if os.environ["P3S_TEST_PROCESS"] != str(os.getpid()):
        raise RuntimeError("not here")
    return make_env("Pendulum-v1")


def test_an_environment_that_workers_cannot_make_is_played_here(capsys, monkeypatch):
    monkeypatch.setenv("P3S_TEST_PROCESS", str(os.getpid()))
    training = trained(300, env="Pendulum-v1", evaluation_period=0)
    champions = training.crew.champions()
    judge = Evaluator(fails_elsewhere, training.config.algorithm, 0, workers=2)
    row = judge.evaluate(champions, (), 1, 8, 300)
    assert row == training.evaluations.evaluator.evaluate(champions, (), 1, 8, 300)
    assert capsys.readouterr().err.count("RuntimeError: not here") == 1
    judge.close()
    training.close()


def bad_step(action):
    raise ValueError("the battery is empty")


def fragile():
    env = make_env("Pendulum-v1")
    env.step = bad_step
    return env


def test_an_error_in_a_worker_names_the_learner():
    training = small_training("Pendulum-v1")
    judge = Evaluator(fragile, training.config.algorithm, 0, workers=1)
    champions = training.crew.champions()
    with pytest.raises(TrainingStopped, match=r"learner 0 raised at a step .*empty"):
        judge.evaluate(champions, (), None, 1, 0)
    judge.close()
    training.close()


def test_workers_are_started_where_an_evaluation_takes_long(monkeypatch):
    monkeypatch.setattr(protocol, "available_cores", lambda: [0, 1, 2])
    training = small_training(evaluation_workers=None)
    training.run(250)
    assert training.evaluations.evaluator.workers is None
    training.close()
    monkeypatch.setattr(protocol, "WORTH_WORKERS", 0.0)
    training = small_training(evaluation_workers=None)
    training.run(450)
    assert 1 <= len(training.evaluations.evaluator.workers.started) <= 3
    training.close()


def test_the_option_arrives(capsys, tmp_path):
    code, _, error = call(
        capsys, "train", "Pendulum-v1", "--evaluation-workers", "-1", "--out", tmp_path / "run"
    )
    assert code == 2
    assert "evaluation_workers" in error
    assert small_config(evaluation_workers=2).options.evaluation_workers == 2


def test_rows_are_in_the_order_of_their_steps():
    training = small_training(evaluation_workers=2, evaluation_period=40, evaluation_episodes=3)
    training.run(600)
    steps = [row["step"] for row in training.evaluated]
    assert steps == list(range(40, 601, 40))
    assert np.isfinite([row["score"] for row in training.evaluated]).all()
    training.close()


def test_few_evaluations_are_under_way(monkeypatch):
    """Where episodes take longer than the training, it waits for the oldest."""
    monkeypatch.setattr(queue, "MOST_UNDER_WAY", 1)
    training = small_training(evaluation_workers=1, evaluation_period=40, checkpoint_period=0)
    most = 0

    def look(now):
        nonlocal most
        most = max(most, len(now.evaluations._begun))

    training.run(400, look)
    assert most == 1
    assert [row["step"] for row in training.evaluated] == list(range(40, 401, 40))
    training.close()


def test_what_cannot_be_sent_is_no_raw_error():
    class Local:
        pass

    with pytest.raises(CannotWork, match="cannot be pickled"):
        pickled(Local())
