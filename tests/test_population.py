"""The Python front door: learning, saving, invalid arguments, a small task."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

import p3s
from p3s import Population
from p3s.errors import UserError
from tests.helpers import SMALL, Counter


@pytest.mark.slow
def test_p3s_learns_pendulum():
    """A score above -250 within 12,000 total steps; an untrained policy has about -1,400."""
    population = Population(
        "Pendulum-v1", preset="authors", hidden_sizes=(64, 64), seed=0, evaluation_period=2000
    )

    def not_yet(population: Population) -> bool:
        return not population.evaluations or population.evaluations[-1]["score"] <= -250

    population.learn(12_000, callback=not_yet, progress_bar=False)
    assert population.evaluations[0]["score"] < -1000
    assert population.evaluations[-1]["score"] > -250
    assert population.evaluations[-1]["champion_return"] > -400


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
            ({"distances_exclude": "x"}, "distances_exclude: expected"),
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
        assert population.training.crew.environments.num_episodes.tolist() == [3] * 4
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

    def test_a_folder_without_a_checkpoint_is_no_population(self, tmp_path):
        p3s.Population("Pendulum-v1", **SMALL).save(tmp_path / "saved")
        shutil.rmtree(tmp_path / "saved" / "checkpoints")
        with pytest.raises(UserError, match="holds no checkpoint yet"):
            p3s.Population.load(tmp_path / "saved")

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


class TestWrongValues:
    @pytest.mark.parametrize("steps", [1.5, float("nan"), True, "a"])
    def test_steps_are_whole_numbers(self, steps):
        with pytest.raises(UserError, match="steps must be a whole number"):
            p3s.Population("Pendulum-v1", **SMALL).learn(steps)

    @pytest.mark.parametrize("delay", [20.0, "x", True, 0])
    def test_a_delay_is_a_whole_number_or_end(self, delay):
        with pytest.raises(UserError, match="delay must be a whole number of at least 1 or 'end'"):
            p3s.Population("Pendulum-v1", delay=delay, **SMALL)

    def test_numbers_of_numpy_are_numbers(self, tmp_path):
        population = p3s.Population("Pendulum-v1", delay=np.int64(20), **SMALL)
        population.learn(np.float64(8), progress_bar=False).save(tmp_path / "saved")
        assert p3s.Population.load(tmp_path / "saved").num_steps == 8

    def test_a_save_that_fails_releases_the_folder(self, tmp_path, monkeypatch):
        population = p3s.Population("Pendulum-v1", **SMALL)
        with monkeypatch.context() as patch:
            patch.setattr("p3s.runs.saving.provenance", lambda: {"commit": object()})
            with pytest.raises(TypeError):
                population.save(tmp_path / "saved")
        population.save(tmp_path / "saved")


class TestAsOthersHaveIt:
    def test_words_of_learn(self, population):
        for words, message in (
            ({"log_interval": 4}, "learn takes no log_interval: .*metrics_period"),
            ({"tb_log_name": "x"}, r"loggers=\['tensorboard'\]"),
            ({"reset_num_timesteps": True}, "a new Population begins anew"),
        ):
            with pytest.raises(UserError, match=message):
                population.learn(4, **words)
        with pytest.raises(TypeError, match="unexpected keyword argument 'log_intervals'"):
            population.learn(4, log_intervals=4)

    def test_every_learners_policy(self, population):
        policies = population.policies
        assert len(policies) == 4
        observation = np.full(3, 0.1)
        actions = [policy.predict(observation)[0] for policy in policies]
        champion = population.policy.about["run"]["learner"]
        assert np.array_equal(actions[champion], population.predict(observation)[0])
        assert [policy.about["run"]["learner"] for policy in policies] == [0, 1, 2, 3]
        assert len({action.tobytes() for action in actions}) > 1

    def test_parameters_out_and_in(self, population):
        other = p3s.Population("Pendulum-v1", seed=2, **SMALL)
        parameters = population.get_parameters()
        weights = {name: a for name, a in parameters.items() if name.startswith("learners/policy")}
        assert all(len(array) == 4 for array in weights.values())
        with pytest.raises(UserError, match="does not hold the expected arrays"):
            other.set_parameters(weights)
        observation = np.full(3, 0.1)
        before = other.policies[1].predict(observation)[0]
        other.set_parameters(weights, exact_match=False)
        expected = population.policies[1].predict(observation)[0]
        assert np.array_equal(other.policies[1].predict(observation)[0], expected)
        assert not np.array_equal(before, expected)
        with pytest.raises(UserError, match="unknown parameter 'learners/policy'"):
            other.set_parameters({"learners/policy": 1.0})
        name = next(iter(weights))
        with pytest.raises(UserError, match=f"{name} should be float32"):
            other.set_parameters({name: np.zeros(2)}, exact_match=False)

    def test_an_environment_to_play_in(self, population):
        observation, _ = population.env.reset(seed=0)
        action, _ = population.predict(observation)
        assert population.env.action_space.contains(action)
        assert population.env.spec.id == "Pendulum-v1"

    def test_closed_populations_learn_no_more(self):
        with p3s.Population("Pendulum-v1", **SMALL) as population:
            assert population.num_timesteps == population.num_steps == 0
        population.close()
        with pytest.raises(UserError, match="this population is closed"):
            population.learn(4)
        assert population.predict(np.zeros(3))[0].shape == (1,)
