"""Policies: predict, one safe file, ONNX; and evaluation."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import load_file, save_file

import p3s
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.evaluation import Evaluator
from p3s.policy import Policy
from p3s.policy_onnx import export_onnx

from .conftest import SMALL, small_training
from .test_envs import Counter


@pytest.fixture(scope="module")
def population() -> p3s.Population:
    """Pendulum has actions in [-2, 2]."""
    population = p3s.Population("Pendulum-v1", seed=1, **SMALL)
    return population.learn(900, progress_bar=False)


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


class TestPopulation:
    def test_learning_goes_on(self):
        whole = p3s.Population("InvertedPendulum-v5", **SMALL).learn(800, progress_bar=False)
        parts = p3s.Population("InvertedPendulum-v5", **SMALL)
        assert parts.learn(400, progress_bar=False) is parts
        parts.learn(400, progress_bar=False)
        assert parts.num_steps == whole.num_steps == 800
        observation = np.full(4, 0.1)
        assert np.array_equal(parts.predict(observation)[0], whole.predict(observation)[0])
        assert parts.evaluations[-1]["learner_returns"] == whole.evaluations[-1]["learner_returns"]

    def test_own_environment_and_its_observations(self):
        space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
        make = partial(Counter, observation_space=space)
        population = p3s.Population(make, **{**SMALL, "evaluation_period": 0})
        population.learn(40, progress_bar=False)
        assert p3s.evaluate(population, episodes=2).shape == (2,)
        own = space.sample()
        flat = spaces.flatten(space, own)
        assert np.array_equal(population.predict(own)[0], population.predict(flat)[0])

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            ({"left_out": "x"}, "left_out: expected"),
            ({"seed": 1.5}, "seed: expected a whole number, not 1.5"),
            ({"hidden_sizes": 8}, "hidden_sizes: expected a list, each a whole number, not 8"),
            ({"num_learners": "4"}, "num_learners: expected a whole number"),
            ({"layer_norm": "yes"}, "layer_norm: expected true or false"),
        ],
    )
    def test_values_of_the_wrong_type(self, field, message):
        with pytest.raises(UserError, match=message):
            p3s.Population("Pendulum-v1", **field)

    def test_numbers_of_numpy_are_numbers(self):
        fields = {**SMALL, "seed": np.int64(3), "learning_rate": np.float32(0.5), "rho": 3}
        scheme = p3s.Population("Pendulum-v1", **fields).training.scheme
        assert (scheme.algorithm.learning_rate, scheme.rho) == (0.5, 3.0)

    def test_arguments_of_the_environment(self):
        arguments = {"max_episode_steps": 9}
        population = p3s.Population("Pendulum-v1", env_kwargs=arguments, **SMALL)
        population.learn(80, progress_bar=False)
        assert population.training.collector.num_episodes.tolist() == [3] * 4
        assert population.policy.about["environment"]["kwargs"] == arguments
        with pytest.raises(UserError, match="let the callable pass them"):
            p3s.Population(lambda: None, env_kwargs=arguments)

    def test_saved_and_loaded_goes_on_to_the_bit(self, tmp_path):
        first = p3s.Population("InvertedPendulum-v5", **SMALL).learn(404, progress_bar=False)
        first.save(tmp_path / "saved")
        again = p3s.Population.load(tmp_path / "saved")
        for population in (first, again):
            population.learn(300, progress_bar=False)
        observation = np.full((20, 4), 0.1)
        assert np.array_equal(first.predict(observation)[0], again.predict(observation)[0])

    def test_callback_stops(self):
        seen = []

        def callback(population):
            seen.append(population.num_steps)
            return population.num_steps < 40

        fields = {**SMALL, "hidden_sizes": [16, 16]}  # a list will do
        p3s.Population("InvertedPendulum-v5", **fields).learn(400, callback, progress_bar=False)
        assert seen == list(range(4, 41, 4))

    def test_bad_arguments(self):
        for fields, message in (
            ({"scheme": "p3"}, "did you mean p3s"),
            ({"algorithm": "td4"}, "did you mean td3"),
            ({"preset": "author"}, "did you mean authors"),
            ({"learning_rat": 1.0}, "did you mean learning_rate"),
            ({"num_learners": 0}, "num_learners must be at least 1"),
            ({"scheme": "single", "num_learners": 2}, "one learner"),
        ):
            with pytest.raises(UserError, match=message):
                p3s.Population("Pendulum-v1", **fields)
        with pytest.raises(UserError, match="steps must be at least 1"):
            p3s.Population("Pendulum-v1", **SMALL).learn(0)


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
        with pytest.raises(UserError, match="damaged or no policy"):
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

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda arrays, about: arrays.update({"0/weight": np.zeros((3, 2), np.float32)}),
             r"0/weight should be float32\[3, 16\]"),
            (lambda arrays, about: arrays.update({"0/bias": np.zeros(16)}), "should be float32"),
            (lambda arrays, about: arrays.pop("1/bias"), "expected arrays: 1/bias"),
            (lambda arrays, about: arrays.update({"9/bias": np.zeros(1)}), "expected arrays"),
            (lambda arrays, about: about.update(algorithm="os.system"), "is not known: import the"),
            (lambda arrays, about: about["fields"].update(run="rm"), "unknown field"),
            (lambda arrays, about: about.pop("observation_size"), "description"),
            (lambda arrays, about: about.update(format="pickle"), "format"),
        ],
    )  # fmt: skip
    def test_tampered(self, population, tmp_path, change, message):
        file = tmp_path / "policy.safetensors"
        population.policy.save(file)
        arrays = load_file(file)
        size = int.from_bytes(file.read_bytes()[:8], "little")
        header = json.loads(file.read_bytes()[8 : 8 + size])
        about = json.loads(header["__metadata__"]["p3s"])
        change(arrays, about)
        save_file(arrays, file, {"p3s": json.dumps(about)})
        with pytest.raises(UserError, match=message):
            Policy.load(file)


def test_onnx_agrees(population, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    file = tmp_path / "policy.onnx"
    export_onnx(population.policy, file)
    session = runtime.InferenceSession(str(file))
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32) * 5
    (actions,) = session.run(None, {"observation": observations})
    np.testing.assert_allclose(actions, population.predict(observations)[0], atol=1e-5)


class TestEvaluation:
    def test_seeds_depend_on_step_learner_and_episode_only(self):
        training = small_training("Pendulum-v1", num_learners=2)
        training.run(100)
        policies = training.scheme.champions(training.state)
        whole = training.evaluator.play(policies, [0, 1], 3, step=5)
        fresh = Evaluator(lambda: make_env("Pendulum-v1"), training.config.algorithm, seed=0)
        import jax

        alone = fresh.play(jax.tree.map(lambda leaf: leaf[1:], policies), [1], 2, step=5)
        np.testing.assert_allclose(alone[0], whole[1, :2], rtol=1e-5)
        later = fresh.play(policies, [0, 1], 3, step=6)
        assert not np.isclose(later, whole).any()
        assert len(np.unique(whole)) == 6

    def test_returns_are_those_of_a_plain_loop(self, population):
        env = make_env("Pendulum-v1")
        policy = population.policy
        returns = p3s.evaluate(policy, episodes=2, seed=7)
        from p3s import keys

        for episode in range(2):
            observation, _ = env.reset(seed=keys.integer(7, "evaluation", 0, 0, episode))
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
                total, over = total + reward, terminated or truncated
            assert returns[episode] == pytest.approx(total, rel=1e-4)

    def test_does_not_disturb_training(self):
        quiet, judged = (small_training(evaluation_period=period) for period in (0, 60))
        for training in (quiet, judged):
            training.run(400)
        assert np.array_equal(quiet.replay.rows[:400], judged.replay.rows[:400])

    def test_other_environment(self, population):
        with pytest.raises(UserError, match="the policy is for"):
            p3s.evaluate(population, "InvertedPendulum-v5")
