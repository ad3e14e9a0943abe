"""What tests of several rooms share: small runs, run folders, commands, environments."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from p3s.algorithms import ALGORITHMS
from p3s.cli import main
from p3s.config.run import Config, resolve
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.fields.types import check_fields
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.records import read_rows
from p3s.schemes import SCHEMES, scheme_name
from p3s.schemes.base import EpisodeScheme
from p3s.train import Training

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

IN_SLOW_TESTS = (
    "ddpg",
    "sac_2018",
    "redq",
    "droq",
    "tqc",
    "crossq_td3",
    "sql",
    "crossq",
    "xqc",
    "flashsac",
)


def sizes_for(algorithm: str, sizes: tuple[int, ...] = (16, 15)) -> tuple[int, ...]:
    """Sizes of hidden layers, all of them the first for an algorithm of equal blocks."""
    return (sizes[0],) * len(sizes) if algorithm == "flashsac" else sizes


def off_policy(*more_in_slow_tests: str) -> list:
    """The off-policy algorithms, as parameters of a test."""
    return [
        pytest.param(name, marks=pytest.mark.slow)
        if name in (*IN_SLOW_TESTS, *more_in_slow_tests)
        else name
        for name, algorithm in ALGORITHMS.items()
        if not algorithm.on_policy
    ]


OFF_POLICY = off_policy()
"""For tests that compile an algorithm: those that few people use are left to the slow tests. All
are traced in schemes/test_combinations.py."""

# ---------------------------------------------------------------------- small runs

SMALL: dict[str, Any] = {
    "preset": "paper",
    "hidden_sizes": (16,),
    "batch_size": 8,
    "initial_steps": 20,
    "review_period": 25,
    "buffer_size": 1000,
    "evaluation_period": 200,
    "evaluation_episodes": 2,
    "metrics_period": 100,
}
"""With these fields a run takes a second and still does everything that a run does."""


def small_config(env: str = "InvertedPendulum-v5", scheme: str = "p3s", **fields) -> Config:
    """A run with the fields of SMALL, as far as the scheme has them."""
    small = dict(SMALL)
    if issubclass(SCHEMES[scheme_name(scheme)], EpisodeScheme):
        small = {**small, "num_learners": 4}
        del small["review_period"]
    if scheme == "rollout":
        records = ("evaluation_period", "evaluation_episodes", "metrics_period", "hidden_sizes")
        small = {name: SMALL[name] for name in records}
        small = {**small, "preset": "paper", "algorithm": "ppo", "rollout_steps": 64}
    return resolve(env, scheme, **{**small, **fields})


def small_training(env: str = "InvertedPendulum-v5", **fields) -> Training:
    """A small run without a folder."""
    config = small_config(env, **fields)
    return Training(config, partial(make_env, config.env))


def trained(steps: int = 400, **fields) -> Training:
    """A small run after its first steps."""
    training = small_training(**fields)
    training.run(steps)
    return training


def problem_of(part) -> str:
    """What is wrong with the fields of an algorithm or a scheme; empty if nothing is."""
    try:
        check_fields(part)
    except UserError as error:
        return str(error)
    return str(part.problem() or "")


def leaves(tree) -> list[np.ndarray]:
    """All arrays of a pytree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def state_of(training: Training) -> dict[str, Any]:
    """Counters, learners, experience, returns and metrics of a run, less times, by their names."""
    snapshot = copy.deepcopy(training.snapshot())
    del snapshot["counters"]["seconds"]
    if training.experience.ring is not None:
        ring = training.experience.ring
        filled = ring.rows[: ring.size].view(np.uint8).copy()
        snapshot["ring"] = {"num_added": ring.num_added, "rows": filled}
    values = {f"{part}/{name}": v for part in snapshot for name, v in snapshot[part].items()}
    # Equal environment states may be pickled in different ways.
    states = [name for name in values if name.startswith("environments/state_")]
    return {name: v for name, v in values.items() if name not in states}


def assert_same_state(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Two runs were in the same state, by `state_of`."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_equal(theirs[name], value, name)


def assert_same_bits(ours: Training, theirs: Training) -> None:
    """Two runs are in the same state, less times."""
    assert_same_state(state_of(ours), state_of(theirs))


def assert_file_and_export(policy: Policy, folder: Path) -> None:
    """A policy's file gives its actions to the bit, and its ONNX graph nearly."""
    policy.save(folder / "policy.safetensors")
    loaded = Policy.load(folder / "policy.safetensors")
    assert loaded.algorithm == policy.algorithm
    shape = (50, *policy.spec.observation.shape)
    observations = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = policy.predict(observations)[0]
    assert np.array_equal(loaded.predict(observations)[0], expected)
    if policy.algorithm.noiseless_layers(policy.params, policy.spec) is None:
        with pytest.raises(UserError, match="cannot be exported: only dense layers and conv"):
            export_onnx(loaded, folder / "policy.onnx")
        return
    export_onnx(loaded, folder / "policy.onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(folder / "policy.onnx"))
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, expected, atol=1e-5)


# ---------------------------------------------------------------------- run folders

TIMES = ("seconds", "steps_per_second", "shards")


def record(path: Path) -> dict:
    """All that a run wrote, less its times."""
    rows = {
        stream: [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in read_rows(path / f"{stream}.jsonl")
        ]
        for stream in ("metrics", "evaluations", "lineage")
    }
    files = {file.name: file.read_bytes() for file in path.glob("policy*.safetensors")}
    return {**rows, **files}


def run(path: Path, until: int | None = None, **fields) -> None:
    """800 steps into a folder; a stop at `until` writes nothing, as if the run was killed there."""
    config = small_config(steps=800, checkpoint_period=100, **fields)
    training = opening.begin(config, path)
    training.run(800, callback=lambda now: now.total_steps < (until or 800))
    training.close()


def resume(path: Path, until: int = 800) -> list[str]:
    """Continue what `run` began, to the end or to another kill."""
    training, notes = opening.reopen(path)
    training.run(800, callback=lambda now: now.total_steps < until)
    training.close()
    return notes


# ---------------------------------------------------------------------- commands


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of one command."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    output = capsys.readouterr()
    return ended.value.code or 0, output.out, output.err


def p3s_process(*arguments, stdout=subprocess.DEVNULL) -> subprocess.Popen:
    """The real command in a process of its own."""
    command = [sys.executable, "-m", "p3s", *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, text=True)


def processes_below(ancestor: int, title: str) -> list[int]:
    """The descendants of a process whose title begins like this.

    Others may have the same title: those of tests beside this one, or of somebody's work.
    """
    command = ["ps", "-eo", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def is_below(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    named = [int(pid) for pid, _, *words in rows if "".join(words).startswith(title)]
    return [pid for pid in named if pid != ancestor and is_below(pid)]


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Wait until the process has written to this file or folder, or has ended."""
    while process.poll() is None:
        if path.is_file() and path.stat().st_size > 0:
            return
        if path.is_dir() and any(path.iterdir()):
            return
        time.sleep(0.01)


# ---------------------------------------------------------------------- environments


class Counter(gymnasium.Env):
    """Pays 1, 2, 3, ... and ends after `length` steps, terminated or truncated."""

    def __init__(self, length=7, truncates=False, low=-1.0, high=1.0, observation_space=None):
        self.length, self.truncates = length, truncates
        self.action_space = spaces.Box(np.float32(low), np.float32(high), (2,), np.float32)
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (1,))
        self.actions = []

    def _observe(self):
        if self.observation_space.shape == (1,):
            return np.array([self.count], np.float64)
        return self.observation_space.sample()

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(np.array(action))
        over = self.count == self.length
        return self._observe(), float(self.count), over and not self.truncates, (
            over and self.truncates
        ), {}  # fmt: skip


class Unpicklable(Counter):
    """Keeps part of its state where nobody can capture it."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        state = {"count": 0}
        self.next = lambda: state.update(count=state["count"] + 1) or state["count"]
        return np.zeros(1), {}

    def step(self, action):
        return np.array([float(self.next())]), 0.0, False, False, {}


def page_data(page: str) -> dict[str, Any]:
    """The data embedded in a report's page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
