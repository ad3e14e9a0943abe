"""A run killed with SIGKILL and resumed is the run that was never interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.options import RunOptions
from p3s.fields.types import field_types
from p3s.schemes import SCHEMES
from tests.helpers import p3s_process, record, wait_for


def last_checkpoint(path: Path) -> int:
    """The step of a run's last checkpoint; 0 without one."""
    steps = [int(each.name.removeprefix("step-")) for each in path.glob("checkpoints/step-*")]
    return max(steps, default=0)


def killed_equals_whole(
    folder: Path, *arguments: str, longest_wait: float, learning_again: bool = False
) -> list[int]:
    """Kill a run three times at random moments; the steps at which it was resumed.

    A resumed run is mostly killed while it starts; learning_again: the last kill waits until it has
    written a checkpoint of its own.
    """
    whole, parts = folder / "whole", folder / "parts"
    assert p3s_process("train", *arguments, "--out", whole).wait() == 0
    resumed_at = []
    process = p3s_process("train", *arguments, "--out", parts)
    for kill in range(3):
        before = last_checkpoint(parts)
        wait_for(parts / "checkpoints", process)
        while learning_again and kill == 2 and last_checkpoint(parts) == before:
            assert process.poll() is None, "the run was over before it could be killed"
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, longest_wait))
        assert process.poll() is None, "the run was over before it could be killed"
        process.kill()
        process.wait()
        resumed_at.append(last_checkpoint(parts))
        process = p3s_process("resume", parts)
    assert process.wait() == 0
    assert record(parts) == record(whole)
    return resumed_at


COPIES = (
    "--envs-per-learner 8 --updates-per-step 1 --buffer-size 20000 --checkpoint-period 4000 "
    "--evaluation-period 30000"
)
ON_A_DEVICE = {
    "stretches": ("flax", f"func:phys2d/Pendulum-v0 --steps 150000 {COPIES}"),
    "shards": (
        "flax",
        f"func:phys2d/Pendulum-v0 --steps 60000 {COPIES} --shards 2 --exchange-period 5",
    ),
    "brax": ("brax", f"brax:inverted_pendulum --steps 60000 {COPIES}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ON_A_DEVICE)
def test_on_a_device(tmp_path, run_arguments, case):
    """Killed in mid-stretch or between two exchanges, with eight copies of each learner."""
    package, arguments = ON_A_DEVICE[case]
    pytest.importorskip(package)
    env, *own = arguments.split()
    resumed_at = killed_equals_whole(
        tmp_path, env, *run_arguments, *own, longest_wait=0.3, learning_again=True
    )
    assert resumed_at[2] > resumed_at[1]
    print(f"{case}: resumed at {resumed_at}, identical")


def test_small_run(tmp_path, run_arguments):
    killed_equals_whole(
        tmp_path, "InvertedPendulum-v5", "--steps", "12000", *run_arguments, longest_wait=0.3
    )


def options_of(scheme: str, arguments: list[str]) -> list[str]:
    """The options that this scheme and its algorithm take, each with its value."""
    algorithm = "ppo" if scheme == "rollout" else "td3"
    fields = set(field_types(RunOptions, SCHEMES[scheme], ALGORITHMS[algorithm]))
    if ALGORITHMS[algorithm].on_policy:
        fields.remove("buffer_size")  # a field of every run, but there is no replay
    known = {"--preset", *(f"--{name.replace('_', '-')}" for name in fields)}
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    taken = [word for option, value in pairs if option in known for word in (option, value)]
    return ["--scheme", scheme, "--algorithm", algorithm, *taken]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"p3s"}))
def test_every_scheme(tmp_path, run_arguments, scheme):
    # On-policy learning makes fewer updates, so that the same number of steps is over sooner.
    steps = "20000" if scheme == "rollout" else "8000"
    arguments = ["InvertedPendulum-v5", "--steps", steps, *options_of(scheme, run_arguments)]
    resumed_at = killed_equals_whole(tmp_path, *arguments, longest_wait=1.0, learning_again=True)
    assert resumed_at[2] > resumed_at[1]
    print(f"{scheme}: resumed at {resumed_at}, identical")


# Networks of their default size; short, since an uninterrupted run is trained for each of them.
LARGE = (
    "--steps", "6000", "--checkpoint-period", "1000", "--evaluation-episodes", "2", "--seed", "3",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["Hopper-v5", "Ant-v5 --delay 20", "Hopper-v5 --preset authors"]
)
def test_large_networks(tmp_path, arguments):
    resumed_at = killed_equals_whole(tmp_path, *arguments.split(), *LARGE, longest_wait=5.0)
    print(f"{arguments}: resumed at {resumed_at}, identical")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo --minibatch-size 64 --rollout-steps 512", "acktr"])
def test_on_policy(tmp_path, algorithm):
    resumed_at = killed_equals_whole(
        tmp_path, "InvertedPendulum-v5", "--scheme", "rollout", "--algorithm", *algorithm.split(),
        "--steps", "20000", "--checkpoint-period", "300", longest_wait=3.0,
    )  # fmt: skip
    print(f"{algorithm}: resumed at {resumed_at}, identical")


def children(process: subprocess.Popen) -> list[int]:
    """The processes that one has started, in any of its threads."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["run", "worker", "both"])
def test_with_workers(tmp_path, run_arguments, victims):
    """A run without workers equals one whose processes are killed; a resume needs no advice."""
    arguments = ["InvertedPendulum-v5", "--steps", "3000", *run_arguments]
    assert p3s_process("train", *arguments, "--out", tmp_path / "whole").wait() == 0
    workers, parts = ["--evaluation-workers", 2, "--env-workers", 2], tmp_path / "parts"
    process = p3s_process("train", *arguments, *workers, "--out", parts)
    for kill in range(4):
        wait_for(parts / "checkpoints", process)
        while len(started := children(process)) < 2 and process.poll() is None:
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 1.0))
        assert process.poll() is None, "the run was over before it could be killed"
        if victims != "run":
            # The environments' workers were started first; killing one ends the run.
            os.kill(started[kill % len(started)], signal.SIGKILL)
        if victims != "worker":
            process.kill()
        elif kill % len(started) > 1:
            continue
        assert process.wait() in (2, -signal.SIGKILL)
        process = p3s_process("resume", parts)
    assert process.wait() == 0
    assert record(parts) == record(tmp_path / "whole")
