"""Runs on images: pixels stay bytes from the environment to the network, on disk too."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import p3s
from p3s.envs import parse_name
from p3s.errors import UserError
from p3s.experience.rows import fields as row_fields
from p3s.experience.rows import record as row_record
from p3s.runs import opening
from p3s.types import ObservationSpec
from tests.helpers import call, record, resume, run
from tests.probe_worlds import Catch

ENV = "p3s-tests/Catch-v0"
FIELDS = {"env": ENV, "algorithm": "dqn", "num_learners": 2, "buffer_size": 300}

if ENV not in gymnasium.registry:
    gymnasium.register(ENV, entry_point="tests.probe_worlds:Catch", disable_env_checker=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose replay is full."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run(path, **FIELDS)
    return path


def images(count: int) -> np.ndarray:
    env, found = Catch(), []
    for seed in range(count):
        env.reset(seed=seed)
        found.append(env.step(seed % 3)[0])
    return np.stack(found)


@pytest.mark.slow
def test_resumes_to_the_bit(folder, tmp_path):
    run(tmp_path / "parts", until=330, **FIELDS)
    resume(tmp_path / "parts", until=570)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(folder)


@pytest.mark.slow
def test_pong_resumes_to_the_bit(tmp_path):
    """Atari's usual preprocessing by wrappers with arguments, one update every four steps."""
    for module in ("ale_py", "cv2"):
        pytest.importorskip(module)
    wrappers = [
        f"gymnasium.wrappers:{name}"
        for name in (
            "AtariPreprocessing(frame_skip=4)", "FrameStackObservation(stack_size=4)",
            "TimeLimit(max_episode_steps=40)",
        )
    ]  # fmt: skip
    pong = parse_name("ale_py:ALE/Pong-v5", None, {"frameskip": 1}, tuple(wrappers))
    fields = {**FIELDS, "env": pong, "updates_per_step": 0.25}
    run(tmp_path / "whole", **fields)
    run(tmp_path / "parts", until=330, **fields)
    assert resume(tmp_path / "parts") == []
    assert record(tmp_path / "parts") == record(tmp_path / "whole")
    training, _ = opening.reopen(tmp_path / "whole")
    training.close()
    assert training.spec.observation == ObservationSpec((4, 84, 84), "uint8")


def test_replay_and_checkpoint_hold_bytes(folder):
    training, _ = opening.reopen(folder)
    training.close()
    ring, spec = training.experience.ring, training.spec
    assert (spec.observation.shape, spec.observation.dtype) == ((40, 40, 1), "uint8")
    size = 2 * 40 * 40 + 3 * 4
    assert row_record(spec).itemsize == size
    assert (ring.rows.dtype, ring.rows.shape) == (np.uint8, (300, size))
    assert training.crew.environments.observations.dtype == np.uint8
    seen = row_fields(ring.rows, spec)
    assert set(np.unique(seen["observation"])) == {0, 128, 255}
    assert set(np.unique(seen["reward"])) == {-1, 0, 1}
    assert set(np.unique(seen["discount"])) == {0, 1}
    newest = max((folder / "checkpoints").iterdir())
    assert (newest / "replay-00000.bin").stat().st_size == 300 * size
    arrays = load_file(newest / "state.safetensors")
    assert arrays["environments/observations"].dtype == np.uint8
    assert arrays["environments/observations"].shape == (2, 40, 40, 1)
    assert arrays["environments/state_0"].dtype == np.uint8


def test_policy_file_predicts_and_is_evaluated(folder, capsys):
    policy = p3s.load(folder, last=True)
    batch = images(6)
    actions, _ = policy.predict(batch)
    assert actions.shape == (6,)
    assert set(actions.tolist()) <= {0, 1, 2}
    singles = [policy.predict(image)[0] for image in batch]
    assert np.array_equal(actions, singles)
    with safe_open(folder / "policy.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()["p3s"])
    assert (about["observation_shape"], about["observation_dtype"]) == ([40, 40, 1], "uint8")
    returns = p3s.evaluate(policy, episodes=3)
    assert set(returns.tolist()) <= {-1.0, 1.0}
    code, output, _ = call(capsys, "evaluate", folder, "--last", "--episodes", 3)
    assert code == 0
    assert f"return {returns.mean():,.1f}" in output
    again = p3s.evaluate(p3s.Population.load(folder), episodes=3)
    assert np.array_equal(again, returns)


def test_pixels_are_not_cast(folder):
    policy = p3s.load(folder)
    for image in (np.full((40, 40, 1), 0.5), np.full((40, 40, 1), 300)):
        with pytest.raises(UserError, match="takes images as uint8 pixels, not"):
            policy.predict(image)


@pytest.mark.parametrize("shape", [(40, 41), (1600,), (2, 3, 40, 40, 1), (40, 40, 3)])
def test_images_of_another_shape_are_refused(folder, shape):
    with pytest.raises(UserError, match=r"takes \[40, 40, 1\] or \[batch, 40, 40, 1\]"):
        p3s.load(folder).predict(np.zeros(shape, np.uint8))


def test_a_greyscale_environment_predicts_from_its_own_images():
    class Grey(Catch):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 255, (40, 40), np.uint8)

        def _observation(self):
            return super()._observation()[..., 0]

    fields = {"hidden_sizes": (8,), "batch_size": 4, "buffer_size": 50, "evaluation_period": 0}
    population = p3s.Population(Grey, algorithm="dqn", num_learners=2, **fields)
    population.learn(20, progress_bar=False)
    image = images(1)[0]
    assert np.array_equal(population.predict(image[..., 0])[0], population.predict(image)[0])
    assert population.predict(images(3))[0].shape == (3,)


def test_normalizing_images_is_refused_in_one_line(capsys, tmp_path):
    code, _, errors = call(
        capsys, "train", ENV, "--algorithm", "dqn", "--normalize-observations",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 2
    assert f"{ENV} has images, which networks scale themselves" in errors
    assert "--no-normalize-observations" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_policy_for_images_plays_nothing_else(folder):
    with pytest.raises(UserError, match="the policy is for uint8 observations of 40×40×1 and 3"):
        p3s.evaluate(p3s.load(folder), "CartPole-v1")
