"""What a person sees of a training."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from p3s.cli.advice import cost_of
from p3s.config.run import resolve
from p3s.envs import parse_name
from p3s.report import progress
from p3s.report.progress import TrainingProgress
from tests.helpers import small_training


def seen(until: int) -> str:
    console = Console(file=io.StringIO(), width=120)
    training = small_training(evaluation_period=0)
    with TrainingProgress(training, 1_000_000, console):
        training.run(until)
    training.close()
    return console.file.getvalue()


class Clock:
    """A second passes with every look at it."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now


def test_the_time_is_estimated_once_from_steps_while_learning(monkeypatch):
    monkeypatch.setattr(progress, "time", Clock())
    lines = seen(400).splitlines()
    # 4 steps a second; 200 steps are random, so about 1,000,000 / 4 seconds are left.
    assert len(lines) == 1
    assert lines[0] == "4 steps/s while learning: about 2.9 d to go"


@pytest.mark.parametrize(("cores", "workers"), [(2, 2), (16, 4), (1, None)])
def test_slow_environments_get_a_recommendation(cores, workers, monkeypatch):
    monkeypatch.setattr(progress, "available_cores", lambda: list(range(cores)))
    monkeypatch.setattr(progress, "time", Clock())
    monkeypatch.setattr(progress, "MUCH_STEPPING", -1.0)
    lines = seen(400).splitlines()[1:]
    found = [
        re.fullmatch(r"stepping .* \d+% of the time: --env-workers (\d+) .*", line)[1]
        for line in lines
    ]
    assert found == ([] if workers is None else [str(workers)])


def test_no_estimate_before_anything_is_learned(monkeypatch):
    monkeypatch.setattr(progress, "time", Clock())
    assert seen(60) == ""


@pytest.mark.parametrize(
    ("scheme", "preset", "words"),
    [
        ("p3s", "recommended", "999,004 updates of each learner: 1 per step, 4 in all"),
        ("p3s", "paper", "249,751 updates of each learner: 0.25 per step, 1 in all"),
        ("p3s", "parallel", "15,440 updates of each learner: 0.0156 per step, 0.0625 in all"),
        ("single", "paper", "1,000,000 environment steps and 999,001 updates: 1 per step"),
        ("distributed", "paper", "999,004 updates: 1 per step"),
        ("cem", "paper", None),
    ],
)
def test_the_cost_of_a_configuration(scheme, preset, words):
    cost = cost_of(resolve(parse_name("Hopper-v5"), scheme, "td3", preset))
    assert cost is None if words is None else words in cost


@pytest.mark.parametrize("updates", [4, 0.3])
def test_the_updates_of_a_run_are_those_that_it_makes(updates):
    training = small_training(updates_per_step=updates, steps=390, evaluation_period=0)
    training.run(390)
    cost = cost_of(training.config)
    assert f"390 environment steps and {training.counters.updates:,} updates of each" in cost
    training.close()
