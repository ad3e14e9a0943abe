"""Copies in workers behave to the bit like copies in this process."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from p3s.envs import Adapter, make_env
from p3s.envs.copies import LocalCopies
from p3s.envs.workers import WorkerCopies
from p3s.errors import TrainingStopped, UserError
from p3s.runs import opening
from p3s.train import Training
from tests.helpers import (
    Counter,
    assert_same_bits,
    call,
    record,
    resume,
    run,
    small_config,
    small_training,
)


def make():
    return Adapter(Counter(3))


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if not name.startswith("state_"):
            np.testing.assert_equal(theirs[name], value, name)


@pytest.fixture(scope="module")
def spread():
    copies = WorkerCopies(make, 5, 0, 2)
    yield copies
    copies.close()


class TestGroup:
    def test_steps_and_episodes(self, spread):
        local = LocalCopies(make, 5, seed=0)
        rng = np.random.default_rng(0)
        for group in (local, spread):
            group.start()
        np.testing.assert_array_equal(spread.observations, local.observations)
        for number in range(20):
            active = np.flatnonzero(rng.random(5) < 0.7) if number % 3 else np.arange(5)
            size = local.spec.action_size
            actions = rng.uniform(-1, 1, (5, size)).astype(np.float32)
            ours, theirs = spread.step(actions, active), local.step(actions, active)
            assert ours.episodes == theirs.episodes
            for mine, other in zip(ours.transitions, theirs.transitions, strict=True):
                np.testing.assert_array_equal(mine, other)
                assert mine.dtype == other.dtype
            np.testing.assert_array_equal(spread.observations, local.observations)
        assert spread.exact_resume == local.exact_resume
        assert_equal(spread.snapshot(), local.snapshot())

    def test_a_snapshot_continues_in_this_process_and_back(self, spread):
        snapshot = spread.snapshot()
        local = LocalCopies(make, 5, seed=0)
        local.resume(snapshot)
        actions = np.zeros((5, local.spec.action_size), np.float32)
        ours, theirs = (group.step(actions, np.arange(5)) for group in (spread, local))
        np.testing.assert_array_equal(ours.transitions.reward, theirs.transitions.reward)
        spread.resume(local.snapshot())
        np.testing.assert_array_equal(spread.observations, local.observations)

    def test_a_transition_is_not_written_over(self, spread):
        actions = np.zeros((5, spread.spec.action_size), np.float32)
        first = spread.step(actions, np.arange(5)).transitions
        before = [part.copy() for part in first]
        spread.step(actions, np.arange(5))
        for part, kept in zip(first, before, strict=True):
            np.testing.assert_array_equal(part, kept)


@pytest.mark.parametrize("workers", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_run_has_the_bits_of_one_process(workers):
    alone, spread = (small_training(env_workers=count) for count in (0, workers))
    for training in (alone, spread):
        training.run(500)
    assert_same_bits(spread, alone)
    for training in (alone, spread):
        training.close()


def test_killed_and_resumed(tmp_path):
    run(tmp_path / "whole", env="Pendulum-v1", delay=7, evaluation_period=0)
    run(
        tmp_path / "parts",
        until=430,
        env="Pendulum-v1",
        delay=7,
        evaluation_period=0,
        env_workers=3,
    )
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(tmp_path / "whole")


def test_a_worker_that_dies_stops_the_run_with_a_line(capsys, tmp_path):
    config = small_config(steps=800, checkpoint_period=100, env_workers=2)
    training = opening.begin(config, tmp_path / "run")
    training.run(800, callback=lambda now: now.total_steps < 250)
    os.kill(training.crew.environments.workers[1].process.pid, signal.SIGKILL)
    with pytest.raises(TrainingStopped, match="the environments of learners 2 to 3 died"):
        training.run(800)
    training.close()
    code, _, error = call(capsys, "resume", tmp_path / "run", "--env-workers", -1)
    assert code == 2
    assert "env_workers" in error
    assert call(capsys, "resume", tmp_path / "run", "--env-workers", 0)[0] == 0
    run(tmp_path / "whole")
    assert record(tmp_path / "run") == record(tmp_path / "whole")


class Failing(Counter):
    def step(self, action):
        raise ValueError("the battery is empty")


def make_failing():
    return Adapter(Failing(3))


def test_errors_name_the_learner():
    copies = WorkerCopies(make_failing, 4, 0, 2)
    copies.start()
    actions = np.zeros((4, copies.spec.action_size), np.float32)
    with pytest.raises(TrainingStopped, match=r"learner 3 raised at a step.*the battery is empty"):
        copies.step(actions, np.array([3]))
    copies.close()


def test_a_callable_that_workers_cannot_have():
    config = small_config("Pendulum-v1", env_workers=2)
    with pytest.raises(UserError, match="cannot be pickled"):
        Training(config, lambda: make_env("Pendulum-v1"))


class TestInterrupted:
    """What was asked and not answered must not be taken for the answer to the next question."""

    def test_an_interrupted_step_is_not_gone_on_from(self, monkeypatch):
        copies = WorkerCopies(make, 4, 0, 2)
        copies.start()
        actions = np.zeros((4, copies.spec.action_size), np.float32)

        def interrupt(index, deadline):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(copies, "_receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                copies.step(actions, np.arange(4))
        with pytest.raises(TrainingStopped, match="was interrupted"):
            copies.step(actions, np.arange(4))
        with pytest.raises(TrainingStopped, match="was interrupted"):
            copies.snapshot()
        copies.close()

    def test_workers_outlive_the_signals_that_end_a_run(self):
        copies = WorkerCopies(make, 2, 0, 1)
        copies.start()
        pid = copies.workers[0].process.pid
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        assert len(copies.snapshot()["lengths"]) == 2
        copies.workers[0].dismiss()
        assert copies.workers[0].process.wait(60) == 0
        copies.close()

    def test_no_room_for_what_is_shared(self, monkeypatch):
        def full(*arguments):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        copies = WorkerCopies(make, 2, 0, 1)
        copies.start()
        message = r"cannot allocate .* bytes of shared memory: use --env-workers 0"
        with pytest.raises(UserError, match=message):
            copies.step(np.zeros((2, copies.spec.action_size), np.float32), np.arange(2))
        copies.close()
