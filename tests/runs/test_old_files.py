"""Run folders that p3s 0.1 wrote: policies, records and settings still open; checkpoints do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.fields.names import RENAMED
from p3s.policies.policy import Policy
from p3s.report.results import read_run
from p3s.runs import opening
from tests.helpers import ROOT, call

OLD = ROOT / "tests" / "data" / "v0.1"
RUNS = sorted(path.name for path in OLD.iterdir())
OBSERVATIONS = np.linspace(-1, 1, 20).reshape(5, 4) * [1, 2, 3, 4]
FAR = [
    [3.8, -4.0, 19.2, 3.1],
    [0.1, 0.2, 0.0, -0.1],
    [-16.1, 10.8, 39.1, 28.4],
    [-1.0, 0.5, 0.1, 0.3],
    [7.9, -9.4, 43.7, 58.8],
]
"""Observations at which the small Q network does not always choose the same action."""
GOLDEN = {
    "p3s-td3": (
        OBSERVATIONS,
        [-0.11015219986438751, 0.14204202592372894, 0.3947221636772156, 0.648806631565094,
         0.9017797708511353],
    ),
    "p3s-dqn": (FAR, [0, 1, 0, 1, 0]),
    "single-sac-shaped": (
        OBSERVATIONS,
        [-0.27842241525650024, -0.37901929020881653, -0.25808101892471313, -1.240169882774353,
         -1.2414597272872925],
    ),
    "single-ppo": (OBSERVATIONS, [0, 0, 1, 0, 0]),
}  # fmt: skip
"""What p3s 0.1 predicted."""
EXPLORING = [[1, 1, 0, 0, 0], [1, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
"""What its Q network drew in the three calls after that, by the share of random actions."""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_data_is_small_and_names_no_machine_path():
    files = contents(OLD)
    assert sorted(GOLDEN) == RUNS
    assert sum(map(len, files.values())) < 300_000
    for name, data in files.items():
        assert b"/work" not in data, name
        assert b"/tmp" not in data, name


@pytest.mark.parametrize("run", RUNS)
def test_policies_predict_what_they_predicted(run):
    observations, expected = GOLDEN[run]
    for policy in (p3s.load(OLD / run), Policy.load(OLD / run / "policy.safetensors")):
        actions, _ = policy.predict(observations)
        if policy.spec.discrete:
            assert actions.tolist() == expected
        else:
            np.testing.assert_allclose(actions[:, 0], expected, rtol=1e-5)
        assert policy.spec.observation.shape == (4,)
    single, _ = policy.predict(np.asarray(observations)[1])
    assert single == pytest.approx(expected[1], rel=1e-5)


def test_what_is_carried_is_read_too():
    """The share of random actions travels with the Q network."""
    policy = p3s.load(OLD / "p3s-dqn")
    policy.predict(FAR)
    drawn = [policy.predict(FAR, deterministic=False)[0].tolist() for _ in range(len(EXPLORING))]
    assert drawn == EXPLORING


@pytest.mark.parametrize("run", RUNS)
def test_policies_are_written_in_the_present_format(run, tmp_path):
    old, file = p3s.load(OLD / run), tmp_path / "policy.safetensors"
    old.save(file)
    new = p3s.load(file)
    observations, _ = GOLDEN[run]
    assert np.array_equal(new.predict(observations)[0], old.predict(observations)[0])
    assert new.about == old.about
    if old.scaling is not None:
        assert all(map(np.array_equal, new.scaling, old.scaling))


def test_evaluate_plays_the_environment_of_an_old_policy(capsys):
    code, output, _ = call(capsys, "evaluate", OLD / "p3s-td3", "--episodes", 3, "--seed", 1)
    assert code == 0
    assert "return 7.0" in output


@pytest.mark.parametrize("run", RUNS)
def test_reports_read_old_runs(run):
    result, notes = read_run(OLD / run)
    assert notes == []
    assert result.complete
    assert [row["step"] for row in result.evaluations] == [300, 600]
    # The preset is named where it is not the default.
    assert result.method.removesuffix(" (paper)") == "-".join(run.split("-")[:2])
    assert result.seed == 3


@pytest.mark.parametrize("run", RUNS)
def test_settings_are_understood_by_their_old_names(run):
    record = json.loads((OLD / run / "config.json").read_text())
    config = opening.load_config(OLD / run)
    old = {**record["scheme_fields"], **record["algorithm_fields"]}
    assert "discount" in old
    for name, value in old.items():
        owner = config.scheme if name in record["scheme_fields"] else config.algorithm
        found = getattr(owner, RENAMED.get(name, name))
        assert (list(found) if isinstance(found, tuple) else found) == value, name
    assert config.scheme.name == ("rollout" if run == "single-ppo" else record["scheme"])
    assert config.options.steps == 600
    config.check()


@pytest.mark.parametrize("steps", [[], ["--steps", "900"]])
def test_resuming_names_the_version_and_leaves_the_folder_as_it_is(capsys, tmp_path, steps):
    folder = Path(shutil.copytree(OLD / "p3s-dqn", tmp_path / "run"))
    (folder / ".lock").touch()  # every run has one
    before = contents(folder)
    code, output, errors = call(capsys, "resume", folder, *steps)
    assert (code, output) == (2, "loading jax ...\n")
    assert "was written by p3s 0.1: resume the run with that version" in errors
    assert errors.count("\n") == 1
    assert contents(folder) == before
    with pytest.raises(UserError, match=r"written by p3s 0\.1"):
        p3s.Population.load(folder)


@pytest.mark.parametrize(("old", "new"), sorted(RENAMED.items()))
def test_old_names_of_fields_are_answered_with_the_new_ones(old, new):
    algorithm = "ppo" if "reward" in old else "td3"
    scheme = "rollout" if algorithm == "ppo" else "p3s"
    with pytest.raises(UserError, match=f"{old} is now called {new}$"):
        resolve("Pendulum-v1", scheme, algorithm, **{old: 0.5})


def test_learners_of_distributed_are_now_copies():
    with pytest.raises(UserError, match=r"num_learners is now called envs_per_learner$"):
        resolve("Pendulum-v1", "distributed", num_learners=4)
    assert resolve("Pendulum-v1", "distributed", envs_per_learner=3).scheme.num_envs == 3
