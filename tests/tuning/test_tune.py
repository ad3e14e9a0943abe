"""Searches that run: trials, pruned and resumed; killed processes; two calls on one study."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from p3s.config.run import resolve_spec
from p3s.config.run_file import read_run_file
from p3s.config.spec import RunSpec
from p3s.runs.records import read_rows
from p3s.tuning.asked import search_spaces
from p3s.tuning.declaration import Declaration, Proposals
from p3s.tuning.results import importances, leave_best
from p3s.tuning.study import Tuning
from p3s.tuning.trial import TrialRun, value_of
from tests.helpers import call, p3s_process, processes_below, record

pytest.importorskip("optuna")

TINY = {
    "num_learners": 2,
    "hidden_sizes": [16],
    "initial_steps": 20,
    "review_period": 25,
    "buffer_size": 1000,
    "evaluation_period": 100,
    "evaluation_episodes": 1,
    "checkpoint_period": 100,
    "metrics_period": 100,
    "steps": 300,
}
FLAGS = [
    word
    for name, value in TINY.items()
    for word in (f"--{name.replace('_', '-')}", *(value if isinstance(value, list) else [value]))
]  # fmt: skip
ENV = "InvertedPendulum-v5"


class Stop:
    """Asks to stop after so many looks."""

    def __init__(self, looks: float = float("inf")) -> None:
        self._looks = looks

    def __bool__(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def tiny_study(folder: Path, seeds: int = 1, **proposals) -> Tuning:
    spec = RunSpec(ENV, algorithm="td3", fields=TINY)
    tuning = Tuning(folder, str(folder / "journal.log"), "mine", Proposals(**proposals))
    tuning.declare(Declaration(spec, search_spaces(spec, ["learning_rate"]), seeds))
    return tuning


def test_the_value_of_a_seed_is_the_mean_of_its_last_scores():
    assert value_of([{"score": score} for score in (9.0, 1.0, 2.0, 6.0)]) == 3.0
    assert value_of([{"score": 4.0}]) == 4.0


def test_a_trial_that_is_stopped_goes_on_to_the_bit(tmp_path):
    whole, broken = tiny_study(tmp_path / "a"), tiny_study(tmp_path / "b")
    for tuning in (whole, broken):
        tuning.claim(1, 2)
    run = TrialRun(whole, 0, Stop())
    assert run.run()
    assert not TrialRun(broken, 0, Stop(60)).run()  # at step 122 of 300
    assert broken.trials[0].state.name == "RUNNING"
    assert list(broken.trials[0].intermediate_values) == [1]
    again = TrialRun(broken, 0, Stop())
    assert again.run()
    assert again.values == run.values
    assert broken.trials[0].intermediate_values == whole.trials[0].intermediate_values
    assert list(whole.trials[0].intermediate_values) == [1, 2, 3]
    assert record(broken.run(0, 0)) == record(whole.run(0, 0))
    whole.study.tell(0, run.values[0])
    assert importances(whole.study) == {}
    lines = list(leave_best(whole, ()))
    assert lines[-1] == f"to train it: p3s train --config {tmp_path / 'a' / 'best.toml'}"
    config = resolve_spec(read_run_file(tmp_path / "a" / "best.toml"))
    assert config == whole.declared.config(whole.trials[0].params)


def test_seeds_are_told_one_after_the_other_and_pruned_between(tmp_path):
    """The median of two trials that are better than anything prunes the third."""
    tuning = tiny_study(tmp_path, seeds=2, pruner="median", startup_trials=2)
    for number in range(2):
        tuning.claim(3, 9)
        trial = tuning.trial(number)
        for step in range(1, 7):
            # The first seed is worse than whatever comes, the second better.
            trial.report(-1e9 if step <= 3 else 1e9, step)
        tuning.study.tell(number, 1e9)
    tuning.claim(3, 9)
    run = TrialRun(tuning, 2, Stop())
    assert run.run()
    assert run.pruned
    third = tuning.trials[2]
    assert sorted(third.user_attrs) == ["seed 0"]
    assert list(third.intermediate_values) == [1, 2, 3, 4]
    steps = [
        [row["step"] for row in read_rows(tuning.run(2, seed) / "evaluations.jsonl")]
        for seed in range(2)
    ]
    assert steps == [[100, 200, 300], [100]]
    assert next(iter(leave_best(tuning, ()))).startswith("best: trial 0")


@pytest.mark.slow
def test_wilcoxon_compares_seeds_with_those_of_the_best_trial(tmp_path):
    tuning = tiny_study(tmp_path, seeds=5, pruner="wilcoxon")
    tuning.claim(2, 9)
    best = tuning.trial(0)
    for seed in range(5):
        best.report(1e6 + seed, seed)
    tuning.study.tell(0, 1e6)
    tuning.claim(2, 9)
    run = TrialRun(tuning, 1, Stop())
    assert run.run()
    assert run.pruned
    # The least p of n pairs is 1 / 2^n, and 0.1 is enough.
    assert tuning.trials[1].intermediate_values == dict(enumerate(run.values))
    assert len(run.values) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", 0], "trials must be at least 1, not 0"),
        (["--pruner", "wilcoxon"], "pruner wilcoxon compares trials seed by seed: give --seeds 5"),
        (["--evaluation-period", 0], "trials are judged by evaluations"),
        (["--search", "learning_rat"], "unknown field 'learning_rat': did you mean learning_rate"),
        (["--learning-rate", -1], "learning_rate must be above 0, not -1.0"),
        (["--explain"], "--explain and --save-config are for p3s train"),
        (["--storage", "nothing://here"], "the storage nothing://here cannot be opened: "),
    ],
)
def test_bad_input_gets_a_line(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, errors = call(capsys, "tune", "Pendulum-v1", "--no-calibrate", *arguments)
    assert code == 2
    assert message in errors
    assert len(errors.strip().split("\n")) == 1
    assert not list(Path("tune").glob("*/trials/*"))


def test_the_environment_comes_first(capsys):
    code, _, errors = call(capsys, "tune", "--trials", 3)
    assert (code, errors) == (2, "p3s: give the environment first: p3s tune ENV [options]\n")


def test_a_missing_extra_gets_the_command_that_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    code, _, errors = call(capsys, "tune", "Pendulum-v1")
    assert (code, errors) == (2, "p3s: p3s tune requires optuna: pip install 'p3s[tune]'\n")


# ---------------------------------------------------------------------- whole searches


def tune(folder: Path, *more, trials: int = 4):
    return [
        "tune", ENV, "--algorithm", "td3", *FLAGS, "--no-calibrate", "--trials", trials,
        "--search", "learning_rate", "batch_size", "--out", folder, *more,
    ]  # fmt: skip


def states(folder: Path) -> list[str]:
    import optuna

    from p3s.tuning.storage import open_storage

    storage = open_storage(str(folder / "journal.log"))
    (name,) = (study.study_name for study in storage.get_all_studies())
    return [
        trial.state.name for trial in optuna.load_study(study_name=name, storage=storage).trials
    ]


def starts(folder: Path) -> list[str]:
    logs = [log.read_text().split("\n") for log in (folder / "logs").iterdir()]
    return [line for log in logs for line in log if line.startswith("seed ")]


def pid_at_work(folder: Path, process) -> int:
    """The process of a trial that has a checkpoint and is not finished."""
    while process.poll() is None:
        for path in (folder / "trials").glob("*/*/checkpoints/step-*"):
            number = path.parents[2].name
            with_lock = folder / "locks" / number
            if states(folder)[int(number)] == "RUNNING" and with_lock.read_text():
                return int(with_lock.read_text())
        time.sleep(0.02)
    raise AssertionError("the search ended")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["trial", "all"])
def test_a_search_survives_kill(tmp_path, capsys, victim):
    folder = tmp_path / "search"
    more = ("--jobs", 2, "--steps", 2000, "--evaluation-period", 500, "--pruner", "none")
    process = p3s_process(*tune(folder, *more))
    pid = pid_at_work(folder, process)
    if victim == "all":
        process.kill()
    os.kill(pid, signal.SIGKILL)
    code = process.wait()
    assert code == (-signal.SIGKILL if victim == "all" else 0)
    if victim == "all":
        code, output, _ = call(capsys, *tune(folder, *more))
        assert code == 0
        assert "continues where it stopped" in output
    assert states(folder) == ["COMPLETE"] * 4
    assert any(not line.endswith("from step 0") for line in starts(folder))
    assert len(starts(folder)) >= 5
    code, output, _ = call(capsys, *tune(folder, *more))  # nothing is left to do
    assert code == 0
    assert len(states(folder)) == 4
    command = re.search("to train it: p3s (.*)", output)[1].split()
    assert call(capsys, *command, "--steps", 200, "--out", tmp_path / "best")[0] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("turn_on_ray")
def test_a_search_on_a_cluster_survives_a_lost_trial(tmp_path):
    pytest.importorskip("ray")
    folder = tmp_path / "search"
    more = ("--engine", "ray", "--steps", 2000, "--evaluation-period", 500, "--pruner", "none")
    process = p3s_process(*tune(folder, *more))
    while process.poll() is None and not list(folder.glob("trials/*/*/checkpoints/step-*")):
        time.sleep(0.05)
    for number in processes_below(process.pid, "ray::CellActor"):
        os.kill(number, signal.SIGKILL)
    assert process.wait() == 0
    assert states(folder) == ["COMPLETE"] * 4
    assert any(not line.endswith("from step 0") for line in starts(folder))


@pytest.mark.slow
def test_two_calls_share_a_study(tmp_path):
    folder = tmp_path / "search"
    processes = [p3s_process(*tune(folder)) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(states(folder)) == 4
    assert set(states(folder)) <= {"COMPLETE", "PRUNED"}
    assert len(starts(folder)) == 4


@pytest.mark.slow
def test_a_search_whose_trials_all_fail_ends_with_their_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_pendulum.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv\n"
        "class Broken(InvertedPendulumEnv):\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('a joint broke')\n"
        "gymnasium.register('Broken-v0', Broken, max_episode_steps=1000)\n"
    )
    words = tune(tmp_path / "search", "--jobs", 2)
    words[1] = "broken_pendulum:Broken-v0"
    code, _, errors = call(capsys, *words)
    assert code == 2
    assert "trials have all failed: " in errors
    assert "a joint broke" in errors
