"""Normalized observations: the moments, and every place where an observation is looked at."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import p3s
from p3s import keys
from p3s.errors import UserError
from p3s.experience import Batches
from p3s.experience.normalization import NoNormalizer, RunningMoments, normalize
from p3s.experience.rows import unpack_transitions
from p3s.policies.file import read_policy_file
from p3s.policies.onnx_export import export_onnx
from p3s.policies.policy import Policy
from p3s.types import EnvSpec, ObservationSpec
from tests.helpers import SMALL, record, resume, run

FIELDS = {"env": "Pendulum-v1", "num_learners": 2, "normalize_observations": True}


class TestMoments:
    draw = np.random.default_rng(0)
    stream = (draw.normal(size=(500, 3)) * [1, 100, 0] + [5, -3000, 7]).astype(np.float32)

    def test_are_those_of_all_that_was_seen(self):
        moments = RunningMoments(EnvSpec.flat(3, 1))
        for part in np.array_split(self.stream, 70):
            moments.see(part)
        exact = self.stream.astype(np.float64)
        np.testing.assert_allclose(moments.scaling.mean, exact.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(
            moments.scaling.scale, 1 / np.sqrt(exact.var(axis=0) + 1e-8), rtol=1e-5
        )
        seen = normalize(self.stream, moments.scaling)
        assert seen.dtype == np.float32
        np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(seen.std(axis=0), [1, 1, 0], atol=1e-3)

    def test_those_of_packed_observations_are_of_their_numbers(self):
        spec = EnvSpec(ObservationSpec.packed(3, ((2, 2, 1),)), 1)
        pixels = self.draw.integers(0, 256, (500, 4)).astype(np.uint8)
        packed = np.concatenate([self.stream.view(np.uint8), pixels], axis=1)
        moments, plain = RunningMoments(spec), RunningMoments(EnvSpec.flat(3, 1))
        moments.see(packed)
        plain.see(self.stream)
        assert all(map(np.array_equal, moments.scaling, plain.scaling))
        for seen in (normalize(packed, moments.scaling), normalize(packed[7], moments.scaling)):
            assert seen.dtype == np.uint8
        seen = normalize(packed, moments.scaling)
        np.testing.assert_array_equal(seen[:, 12:], pixels)
        numbers = np.ascontiguousarray(seen[:, :12]).view(np.float32)
        np.testing.assert_array_equal(numbers, normalize(self.stream, plain.scaling))
        on_device = jax.jit(normalize)(packed, moments.scaling)
        np.testing.assert_array_equal(on_device[:, 12:], pixels)
        numbers = np.asarray(on_device)[:, :12].copy().view(np.float32)
        np.testing.assert_allclose(numbers, normalize(self.stream, plain.scaling), rtol=1e-5)

    def test_outliers_are_clipped_and_nothing_happens_without_a_scaling(self):
        moments = RunningMoments(EnvSpec.flat(3, 1))
        moments.see(self.stream)
        assert normalize(np.full(3, 1e9, np.float32), moments.scaling).tolist() == [10, 10, 10]
        assert normalize(self.stream, None) is self.stream

    def test_resumed_to_the_bit(self):
        whole, first, again = (RunningMoments(EnvSpec.flat(3, 1)) for _ in range(3))
        whole.see(self.stream)
        first.see(self.stream[:99])
        again.resume(first.snapshot())
        assert all(map(np.array_equal, again.scaling, first.scaling))
        again.see(self.stream[99:])
        assert all(map(np.array_equal, again.scaling, whole.scaling))


@pytest.fixture(scope="module")
def population() -> p3s.Population:
    """TD3 under p3s, whose observations in Pendulum have unequal scales."""
    fields = {**SMALL, **FIELDS}
    population = p3s.Population(fields.pop("env"), seed=1, **fields)
    return population.learn(600, progress_bar=False)


def test_every_observation_acted_on_is_counted_once(population):
    training = population.training
    assert training.crew.normalizer.count == training.experience.ring.num_added == 600
    seen = training.experience.ring.rows[:600, :3].astype(np.float64)
    np.testing.assert_allclose(training.crew.normalizer.mean, seen.mean(axis=0), rtol=1e-6)


def test_learning_normalizes_both_observations(population):
    training = population.training
    rows = training.experience.ring.rows[:16].reshape(2, 8, -1)
    batches = unpack_transitions(training.spec, rows)
    scaling = training.crew.normalizer.scaling
    by_hand = batches._replace(
        observation=normalize(batches.observation, scaling),
        next_observation=normalize(batches.next_observation, scaling),
    )
    key, state = keys.key(training.options.seed, "learn"), training.crew.updater.state
    expected, _ = jax.jit(training.scheme.learn, static_argnums=3)(
        state, by_hand, jax.random.fold_in(key, 1), True
    )
    copy = jax.tree.map(lambda leaf: leaf.copy(), state)
    moved, _ = training.crew.updater.program.learn(copy, [Batches(rows, scaling)], 1, (True,))
    pairs = zip(jax.tree.leaves(moved.learners), jax.tree.leaves(expected.learners), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_moving_statistics_compile_nothing(population):
    training = population.training
    assert training.crew.updater.program.num_compiled == (2, 1)


def test_policy_file_evaluation_and_export(population, tmp_path):
    file = tmp_path / "policy.safetensors"
    policy = population.policy
    policy.save(file)
    loaded = p3s.load(file)
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * [1, 1, 8]
    expected = policy.predict(observations)[0]
    assert np.array_equal(loaded.predict(observations)[0], expected)
    assert np.array_equal(p3s.evaluate(loaded, episodes=2), p3s.evaluate(population, episodes=2))
    plain = Policy(policy.algorithm, policy.params, policy.spec, policy.about)
    assert not np.allclose(plain.predict(observations)[0], expected)
    assert not np.allclose(p3s.evaluate(plain, episodes=2), p3s.evaluate(loaded, episodes=2))
    runtime = pytest.importorskip("onnxruntime")
    export_onnx(loaded, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    (actions,) = session.run(None, {"observation": observations.astype(np.float32)})
    np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_file_without_its_moments(population, tmp_path):
    file = tmp_path / "policy.safetensors"
    population.policy.save(file)
    arrays, (about, _) = load_file(file), read_policy_file(file)
    arrays.pop("normalization/mean")
    save_file(arrays, file, {"p3s": json.dumps(about)})
    with pytest.raises(UserError, match="normalization does not hold the expected arrays: mean"):
        p3s.load(file)


def test_resumes_to_the_bit(tmp_path):
    run(tmp_path / "whole", **FIELDS)
    run(tmp_path / "parts", until=330, **FIELDS)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(tmp_path / "whole")


def test_off_by_default_off_policy():
    training = p3s.Population("Pendulum-v1", **SMALL).training
    assert type(training.crew.normalizer) is NoNormalizer
    assert training.policy().scaling is None
