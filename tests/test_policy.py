"""Policies: predict, and one safe file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import p3s
from p3s.errors import UserError
from p3s.policies.file import checksum
from p3s.policies.policy import Policy


def description_of(file: Path) -> dict[str, Any]:
    """What a policy file says of itself, without its checksum."""
    size = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + size])
    about = json.loads(header["__metadata__"]["p3s"])
    del about["crc32"]
    return about


class TestPredict:
    def test_single_and_batched_in_the_own_range(self, population):
        draw = np.random.default_rng(0)
        observations = draw.normal(size=(50, 3)).astype(np.float32)
        batched, state = population.predict(observations)
        assert state is None
        assert batched.shape == (50, 1)
        assert batched.dtype == np.float32
        assert np.abs(batched).max() <= 2
        for observation, action in zip(observations[:5], batched, strict=False):
            single, _ = population.predict(observation)
            assert single.shape == (1,)
            np.testing.assert_allclose(single, action, atol=1e-5)
        inner = population.policy.act(observations)
        np.testing.assert_allclose(batched, 2 * inner, atol=1e-6)

    def test_noise(self, population):
        observation = np.zeros(3)
        exact, again = (population.predict(observation)[0] for _ in range(2))
        assert np.array_equal(exact, again)
        assert not np.array_equal(population.predict(observation, deterministic=False)[0], exact)

    @pytest.mark.parametrize("shape", [(), (4,), (2, 4), (1, 1, 3)])
    def test_wrong_shape(self, population, shape):
        with pytest.raises(UserError, match=r"takes \[3\] or \[batch, 3\]"):
            population.predict(np.zeros(shape))


class TestFile:
    def test_round_trip(self, population, tmp_path):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        loaded = p3s.load(file)
        observations = np.random.default_rng(0).normal(size=(9, 3))
        assert np.array_equal(loaded.predict(observations)[0], population.predict(observations)[0])
        assert loaded.about["environment"]["id"] == "Pendulum-v1"
        returns = p3s.evaluate(loaded, episodes=3)
        assert np.array_equal(returns, p3s.evaluate(population, episodes=3))
        loaded.save(tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()

    @pytest.mark.parametrize("size", [0, 7, 100, -5])
    def test_truncated(self, population, tmp_path, size):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        file.write_bytes(file.read_bytes()[:size])
        with pytest.raises(UserError, match="damaged or not a policy"):
            Policy.load(file)

    def test_not_one(self, tmp_path):
        file = tmp_path / "other.safetensors"
        save_file({"a": np.zeros(2)}, file)
        with pytest.raises(UserError, match="not a p3s policy"):
            Policy.load(file)
        with pytest.raises(UserError, match="no policy file"):
            p3s.load(tmp_path / "nothing")
        with pytest.raises(UserError, match="no policy yet"):
            p3s.load(tmp_path)

    def test_a_changed_byte_is_noticed(self, population, tmp_path):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with pytest.raises(UserError, match="is damaged: it is not what was written"):
            Policy.load(file)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda arrays, about: arrays.update({"params/0/weight": np.zeros((3, 2), np.float32)}),
             r"params/0/weight should be float32\[3, 16\]"),
            (lambda arrays, about: arrays.update({"params/0/bias": np.zeros(16)}),
             "should be float32"),
            (lambda arrays, about: arrays.pop("params/1/bias"),
             "expected arrays: params/1/bias"),
            (lambda arrays, about: arrays.update({"params/9/bias": np.zeros(1)}),
             "expected arrays"),
            (lambda arrays, about: about.update(algorithm="os.system"), "is not known: import the"),
            (lambda arrays, about: about["fields"].update(run="rm"), "unknown field"),
            (lambda arrays, about: about.pop("observation_shape"), "description"),
            (lambda arrays, about: about.update(format="pickle"), "format"),
        ],
    )  # fmt: skip
    def test_tampered(self, population, tmp_path, change, message):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        arrays = load_file(file)
        about = description_of(file)  # who changes a file on purpose can omit the checksum, too
        change(arrays, about)
        save_file(arrays, file, {"p3s": json.dumps(about)})
        with pytest.raises(UserError, match=message):
            Policy.load(file)

    def test_names_of_early_versions_are_read(self, population, tmp_path):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        arrays, about = load_file(file), description_of(file)
        about["observations_seen"] = 3 * about.pop("num_stacked_observations")
        about["fields"]["num_values"] = about["fields"].pop("num_critics")
        about["crc32"] = checksum(about, arrays)
        save_file(arrays, file, {"p3s": json.dumps(about)})
        policy = Policy.load(file)
        assert policy.num_stacked_observations == 3
        assert policy.algorithm == population.policy.algorithm
        assert "observations_seen" not in policy.about
