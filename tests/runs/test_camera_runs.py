"""Runs on images with numbers beside them: bytes until the network reads them, on disk too."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import p3s
from p3s.envs.flattening import flatten_observation
from p3s.errors import UserError
from p3s.experience.rows import fields as row_fields
from p3s.networks import unpacked
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.runs import opening
from tests.camera_worlds import BARE, ENV, Camera, Goals, Masked, batch_of, shown
from tests.helpers import (
    assert_same_bits,
    call,
    record,
    resume,
    run,
    small_config,
    small_training,
)

FIELDS = {"env": ENV, "algorithm": "dqn", "num_learners": 2, "buffer_size": 300}
SMALL = {"algorithm": "sac", "num_learners": 2, "hidden_sizes": (8,), "batch_size": 8,
         "initial_steps": 20, "review_period": 25, "buffer_size": 200, "evaluation_period": 0,
         "preset": "paper"}  # fmt: skip
RANDOM = {**SMALL, "initial_steps": 1000}
"""Nothing is learned, so nothing is compiled."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose replay is full."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run(path, **FIELDS)
    return path


@pytest.fixture(scope="module")
def continuous():
    """A population with continuous actions and normalized numbers."""
    make = partial(Camera, discrete=False)
    population = p3s.Population(make, normalize_observations=True, **SMALL)
    population.learn(120, progress_bar=False)
    return population


@pytest.mark.slow
def test_resumes_to_the_bit(folder, tmp_path):
    run(tmp_path / "parts", until=330, **FIELDS)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(folder)


def test_replay_and_checkpoint_hold_bytes(folder):
    newest = max((folder / "checkpoints").iterdir())
    assert (newest / "replay-00000.bin").stat().st_size == 300 * (2 * Camera.NUM_BYTES + 3 * 4)
    shown = load_file(newest / "state.safetensors")["environments/observations"]
    assert (shown.shape, shown.dtype) == ((2, Camera.NUM_BYTES), np.uint8)


def test_minibatches_are_what_the_environments_showed(folder):
    """Rewards are the first number of what follows, so every row can be checked by itself."""
    training, _ = opening.reopen(folder)
    training.close()
    spec, experience = training.spec, training.experience
    batch = experience.unpack(spec, experience.take(1, 2, 0).rows)
    for seen in (batch.observation, batch.next_observation):
        assert (seen.dtype, seen.shape) == (np.uint8, (2, 8, Camera.NUM_BYTES))
        numbers, images = unpacked(seen, spec.observation.images)
        assert [image.shape[2:] for image in images] == list(Camera.IMAGES.values())
        kinds = np.asarray(numbers)[..., 2:5]
        assert np.isin(kinds, [0, 1]).all()
        assert (kinds.sum(axis=-1) == 1).all()
        assert len(np.unique(images[0])) > 200
    np.testing.assert_array_equal(numbers[..., 0], batch.reward)


def test_the_policy_file_holds_the_network(folder):
    policy = p3s.load(folder, last=True)
    with safe_open(folder / "policy.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()["p3s"])
    assert about["observation_images"] == [list(shape) for shape in Camera.IMAGES.values()]
    assert policy.spec.observation.images == tuple(Camera.IMAGES.values())
    assert "pixels and 7 numbers" in repr(policy)
    found = p3s.evaluate(policy, episodes=3)
    again = p3s.evaluate(p3s.Population.load(folder), episodes=3)
    assert np.array_equal(found, again)


@pytest.mark.parametrize("which", ["discrete", pytest.param("continuous", marks=pytest.mark.slow)])
def test_predict_takes_dicts_one_or_a_batch_and_the_export_agrees(which, folder, request, tmp_path):
    if which == "discrete":
        policy = p3s.load(folder)
    else:
        policy = request.getfixturevalue("continuous").policy
    observations = shown(30)
    actions = policy.predict(batch_of(observations))[0]
    one_by_one = np.stack([policy.predict(seen)[0] for seen in observations])
    np.testing.assert_allclose(one_by_one, actions, atol=1e-5)
    policy.save(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(
        Policy.load(tmp_path / "policy.safetensors").predict(batch_of(observations))[0], actions
    )
    runtime = pytest.importorskip("onnxruntime")
    export_onnx(policy, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    rows = flatten_observation(policy.about["observation_space"], batch_of(observations))
    numbers = np.ascontiguousarray(rows[:, : 4 * Camera.NUM_NUMBERS]).view(np.float32)
    images = {
        f"image.{name}": np.stack([seen[name].reshape(shape) for seen in observations])
        for name, shape in Camera.IMAGES.items()
    }
    (exported,) = session.run(None, {"observation": numbers, **images})
    assert len(np.unique(exported, axis=0)) > 1
    np.testing.assert_allclose(exported, actions, atol=1e-5)


@pytest.mark.slow
def test_normalization_is_of_the_numbers(continuous):
    scaling = continuous.policy.scaling
    assert scaling.mean.shape == (Camera.NUM_NUMBERS,)
    assert continuous.training.crew.normalizer.count == 120
    rows = row_fields(continuous.training.experience.ring.rows[:120], continuous.training.spec)
    words = np.ascontiguousarray(rows["observation"][:, : 4 * Camera.NUM_NUMBERS])
    np.testing.assert_allclose(scaling.mean, words.view(np.float32).mean(axis=0), atol=0.1)


def test_what_does_not_fit_is_refused(folder):
    policy, seen = p3s.load(folder), shown(1)[0]
    for wrong in ({**seen, "camera": seen["camera"][0]}, {"camera": seen["camera"]}):
        with pytest.raises(UserError, match=r"images are uint8 of \[3, 8, 8\] and \[5, 5, 1\]"):
            policy.predict(wrong)
    with pytest.raises(UserError, match=rf"takes \[{Camera.NUM_BYTES}\] or \[batch"):
        policy.predict(np.zeros(7, np.uint8))
    with pytest.raises(UserError, match="as uint8 pixels, not float32"):
        policy.predict(np.zeros(Camera.NUM_BYTES, np.float32))
    with pytest.raises(UserError, match="the policy is for observations of 3×8×8, 5×5×1 pixels"):
        p3s.evaluate(policy, "CartPole-v1")


@pytest.mark.parametrize(
    "images",
    [[[3, 8, 9]], [[3, 8]], [[0, 8, 8]], "x", [[1 << 30, 1 << 30, 1]], [[3, 8, 8]]],
)
def test_a_made_up_file_is_refused(folder, images, tmp_path, monkeypatch):
    policy = p3s.load(folder)
    monkeypatch.setitem(policy.about, "observation_images", images)
    policy.save(tmp_path / "policy.safetensors")
    with pytest.raises(UserError, match="is damaged: its description does not fit"):
        Policy.load(tmp_path / "policy.safetensors")


@pytest.mark.slow
def test_env_workers_carry_them():
    alone, spread = (
        small_training(ENV, **{**SMALL, "algorithm": "dqn"}, env_workers=count) for count in (0, 2)
    )
    for training in (alone, spread):
        training.run(80)
    assert_same_bits(alone, spread)
    for training in (alone, spread):
        training.close()


@pytest.mark.slow
def test_shards_carry_them(tmp_path):
    fields = {**SMALL, "env": ENV, "algorithm": "dqn", "steps": 80}
    whole = opening.begin(small_config(**fields), tmp_path / "whole")
    split = opening.begin(small_config(**fields, shards=1, exchange_period=1), tmp_path / "split")
    for training in (whole, split):
        training.run(80)
        training.close()
    assert record(tmp_path / "split") == record(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "fields"),
    [
        (partial(Camera, discrete=False), {"n_step": 3}),
        (partial(Camera, discrete=False), {"credit": "ircr", "delay": "end"}),
        (Goals, {"hindsight": "future"}),
        (Masked, {"algorithm": "dqn", "normalize_observations": True}),
    ],
)
def test_what_changes_rows_goes_with_it(env, fields):
    population = p3s.Population(env, **{**SMALL, **fields})
    population.learn(120, progress_bar=False)
    training = population.training
    assert training.spec.observation.images
    assert training.counters.updates > 0
    training.crew.updater.settle()
    losses = training.crew.updater.metrics.means()
    assert all(np.isfinite(values).all() for values in losses.values())


def played(env, **fields):
    """A training after 120 random steps, and a minibatch of each learner."""
    population = p3s.Population(env, **{**RANDOM, **fields})
    population.learn(120, progress_bar=False)
    training = population.training
    batch = training.experience.unpack(training.spec, training.experience.take(1, 2, 0).rows)
    return training, batch


def test_goals_are_replaced_in_packed_observations():
    training, batch = played(Goals, hindsight="future")
    images = training.spec.observation.images
    numbers, _ = unpacked(batch.next_observation, images)
    achieved, desired = np.asarray(numbers[..., :2]), np.asarray(numbers[..., 2:4])
    distances = -np.linalg.norm(achieved - desired, axis=-1)
    np.testing.assert_allclose(batch.reward, distances, atol=1e-5)
    assert (distances[:, : round(0.8 * 8)] == 0).any()
    before, _ = unpacked(batch.observation, images)
    np.testing.assert_array_equal(before[..., 2:4], desired)


def test_returns_of_several_steps_end_in_what_was_shown_there():
    training, batch = played(Camera, algorithm="dqn", n_step=3)
    assert batch.reward.shape == (2, 8, 3)
    numbers, _ = unpacked(batch.next_observation, training.spec.observation.images)
    rewards = np.asarray(batch.reward)
    last = np.asarray(numbers)[..., 0]
    # The last reward is the first number of what follows; fewer steps end with zeros.
    assert (last[..., None] == rewards).any(axis=-1).all()
    assert (last == rewards[..., 2]).mean() > 0.3


def test_masks_are_kept():
    training, _ = played(Masked, algorithm="dqn")
    assert training.spec.observation.shape == (Camera.NUM_BYTES + 3,)
    assert training.spec.features.shape == (Camera.NUM_BYTES,)
    rows = row_fields(training.experience.ring.rows[:120], training.spec)
    actions, first = rows["action"][:, 0], rows["observation"][:, Camera.NUM_BYTES]
    assert set(np.unique(first)) == {0, 1}
    assert (first[actions == 0] == 1).all()


class TestRefused:
    def test_a_reward_network_in_one_line(self, capsys):
        code, _, errors = call(capsys, "train", ENV, "--credit", "rrd", "--delay", "end")
        assert (code, errors.count("\n")) == (2, 1)
        assert f"{BARE} has images, and the reward network of credit rrd reads vectors" in errors

    def test_goals_that_are_pictures(self):
        with pytest.raises(UserError, match="its goals are pixels, and hindsight replaces numbers"):
            p3s.Population(partial(Goals, seen_goals=True), hindsight="future", **SMALL)
