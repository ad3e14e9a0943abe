"""Presets: published values arrive where they belong, and give way to the user's.

Values of our own are not repeated here: `presets.py` is their table.
"""

from __future__ import annotations

import inspect
from itertools import product

import jax.numpy as jnp
import pytest

from p3s.algorithms.parts.squashed_gaussian import Gaussian, gaussian_kl
from p3s.cli.train import parse_train
from p3s.config.presets import PRESETS
from p3s.config.run import field_values, resolve
from p3s.population import Population
from p3s.schemes.erl import ERL_DDPG
from p3s.schemes.p3s import KL_PER_SQUARE
from p3s.study.reading import parse
from tests.helpers import SMALL

GAUSSIAN = ("sac", "sac_2018", "redq", "droq", "tqc", "crossq", "xqc")


def test_random_phase():
    names = ("paper", "authors")
    text, code = (resolve("HalfCheetah-v5", preset=preset).scheme for preset in names)
    assert (text.initial_steps, text.num_random_steps) == (2500, 2499)
    assert (code.initial_steps, code.num_random_steps) == (2500, 3000)
    assert resolve("Hopper-v5", preset="authors").scheme.num_random_steps == 1000
    assert resolve("Hopper-v5", "single").scheme.initial_steps == 1000


class TestOriginalCodes:
    """SAC of 2018 and SQL: when their own codes learn and act, and how they start."""

    @pytest.mark.parametrize(
        ("algorithm", "env", "scheme", "initial_steps", "random_steps"),
        [("sac_2018", "Hopper-v5", "single", 1000, 1000),
         ("sac_2018", "HalfCheetah-v5", "single", 1000, 10_000),
         ("sac_2018", "Walker2d-v5", "p3s", 250, 250),
         ("sac_2018", "Delayed Ant-v1", "p3s", 250, 2500),
         ("sql", "Hopper-v5", "single", 1000, 0),
         ("sql", "HalfCheetah-v5", "p3s", 250, 0)],
    )  # fmt: skip
    def test_random_phase(self, algorithm, env, scheme, initial_steps, random_steps):
        for preset in set(PRESETS) - {"parallel"}:
            made = resolve(env, scheme, algorithm, preset).scheme
            assert (made.initial_steps, made.num_random_steps) == (initial_steps, random_steps)

    @pytest.mark.parametrize("algorithm", ["sac_2018", "sql"])
    def test_start_with_xavier(self, algorithm):
        for preset, scheme in product(PRESETS, ("single", "p3s")):
            found = resolve("Hopper-v5", scheme, algorithm, preset).algorithm
            assert found.initialization == "xavier"

    def test_sac_of_today_starts_as_td3(self):
        made = resolve("HalfCheetah-v5", "single", "sac", "paper")
        assert (made.scheme.initial_steps, made.scheme.num_random_steps) == (10_000, 9999)
        assert made.algorithm.initialization == "fan_in"

    def test_schemes_of_whole_episodes_begin_as_they_do(self):
        assert resolve("Ant-v5", "cem", "sac_2018").scheme.initial_steps == 1000
        assert resolve("Ant-v5", "erl", "sac_2018").scheme.initial_steps == 0


class TestManyUpdates:
    """REDQ and DroQ: 20 updates per environment step, from 5000 steps on."""

    @pytest.mark.parametrize(
        ("scheme", "preset", "updates", "initial_steps"),
        [("single", "paper", 20, 5000), ("single", "recommended", 20, 5000),
         ("p3s", "paper", 20, 1250), ("p3s", "recommended", 80, 1250),
         ("distributed", "paper", 80, 1250)],
    )  # fmt: skip
    def test_rhythm(self, scheme, preset, updates, initial_steps):
        for algorithm in ("redq", "droq"):
            made = resolve("Hopper-v5", scheme, algorithm, preset).scheme
            assert (made.num_updates, made.initial_steps) == (updates, initial_steps)
            own = resolve("Hopper-v5", scheme, algorithm, updates_per_step=1).scheme
            assert own.num_updates == 1

    def test_target_entropies_of_the_original_code(self):
        """In total: Hopper -1 over 3 action dimensions, Ant -4 over 8; SAC has -1 for each."""
        assert resolve("Hopper-v5", "single", "redq").algorithm.target_entropy * 3 == -1
        assert resolve("Ant-v5", "single", "droq").algorithm.target_entropy * 8 == -4
        assert resolve("Pendulum-v1", "single", "redq").algorithm.target_entropy == -1
        assert resolve("Ant-v5", "single", "sac").algorithm.target_entropy == -1


class TestDQNTargets:
    """They follow softly where several learners share a replay; one learner copies them."""

    def targets(self, scheme: str, **fields) -> tuple[float, int]:
        algorithm = resolve("Acrobot-v1", scheme, "dqn", **fields).algorithm
        return algorithm.target_rate, algorithm.target_period

    @pytest.mark.parametrize("preset", PRESETS)
    def test_of_a_population(self, preset):
        for scheme in ("p3s", "sharing", "resetting", "center", "pbt", "pb2", "mf_pbt"):
            assert self.targets(scheme, preset=preset) == (0.005, 1)

    def test_of_one_learner(self):
        for scheme in ("single", "distributed"):
            assert self.targets(scheme) == (1.0, 50)
        assert self.targets("p3s", num_learners=1) == (1.0, 50)

    def test_a_value_of_the_users_wins(self):
        assert self.targets("p3s", target_rate=1.0, target_period=9) == (1.0, 9)

    def test_other_algorithms_keep_theirs(self):
        assert resolve("Hopper-v5", algorithm="sql").algorithm.target_rate == 1.0


class TestParallel:
    """Values for many copies of each learner, beside those of an environment."""

    def test_each_learner_has_many_copies(self):
        config = resolve("Pendulum-v1", preset="parallel")
        scheme = config.scheme
        assert scheme.num_envs == scheme.num_learners * scheme.envs_per_learner
        assert 128 <= scheme.envs_per_learner <= 1024
        assert 2 <= scheme.updates_per_step <= 8
        assert scheme.recent_episodes == scheme.envs_per_learner
        # The environment's networks, and its steps only where there is one copy.
        assert config.algorithm.hidden_sizes == (64, 64)
        assert config.options.steps == 1_000_000
        assert config.sources["hidden_sizes"].startswith("environment Pendulum")

    def test_what_depends_on_the_number_of_copies(self):
        few = resolve("Pendulum-v1", preset="parallel", envs_per_learner=16)
        assert few.scheme.recent_episodes == 16
        known = resolve("Pendulum-v1", "single", "sac_2018", "parallel").scheme
        assert known.num_random_steps == -(-1000 // known.num_envs)

    @pytest.mark.parametrize("scheme", ["cem", "erl"])
    def test_schemes_of_one_copy_have_the_recommended_values(self, scheme):
        ours, theirs = (
            resolve("Pendulum-v1", scheme, "td3", preset, steps=1000)
            for preset in ("parallel", "recommended")
        )
        assert (ours.scheme, ours.options) == (theirs.scheme, theirs.options)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build_and_survive_json(preset):
    for env in ("Hopper-v1", "Delayed Ant-v1", "Pendulum-v1", "p3s/DelayedWalker2d-v5"):
        config = resolve(env, **{**SMALL, "preset": preset})
        config.check()
        assert type(config).from_json(config.to_json()) == config


@pytest.mark.parametrize("preset", ["authors", "recommended"])
@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_a_preset_says_what_differs_from_the_text(preset, algorithm):
    """The defaults of the fields are the text; what a preset repeats of them is nothing."""
    text, made = (resolve("Mine-v0", "p3s", algorithm, name) for name in ("paper", preset))
    said = {name for name, source in made.sources.items() if source == f"preset {preset}"}
    values = [
        {**field_values(each.scheme), **field_values(each.algorithm)} for each in (text, made)
    ]
    assert said
    assert said == {name for name in values[0] if values[0][name] != values[1][name]} - {"d_min"}


@pytest.mark.parametrize(
    ("env", "d_min", "initial_steps"),
    [("Hopper-v5", 0.05, 250), ("Walker2d-v5", 0.02, 250), ("HalfCheetah-v5", 0.05, 2500),
     ("Ant-v5", 0.02, 2500), ("Delayed Hopper-v1", 0.02, 250), ("Delayed Ant-v1", 0.05, 2500),
     ("p3s/DelayedHalfCheetah-v5", 0.02, 2500), ("Pendulum-v1", 0.05, 250)],
)  # fmt: skip
def test_appendix_i(env, d_min, initial_steps):
    scheme = resolve(env).scheme
    assert (scheme.d_min, scheme.initial_steps) == (d_min, initial_steps)


class TestSmallestRadius:
    """d_min has the unit of the algorithm's distance."""

    def test_of_a_gaussian_kl(self):
        """Normals with std 0.1 whose means are apart by ½‖.‖² = d have a KL of d / 0.1²."""
        for algorithm, chosen in product(GAUSSIAN, ({"preset": "paper"}, {"distance": "kl"})):
            for env, d_min in (("Hopper-v5", 5.0), ("Ant-v5", 2.0), ("Pendulum-v1", 5.0)):
                assert resolve(env, algorithm=algorithm, **chosen).scheme.d_min == d_min
        squared = Gaussian(jnp.array([[0.3, 0.1]]), jnp.log(jnp.full((1, 2), 0.1)))
        other = squared._replace(mean=jnp.zeros((1, 2)))
        assert gaussian_kl(squared, other)[0] == pytest.approx(0.05 * KL_PER_SQUARE)

    def test_of_gaussian_actions(self):
        """Their distance is TD3's, and so is its unit."""
        for algorithm, chosen in product(GAUSSIAN, ({}, {"preset": "paper", "distance": "action"})):
            for env, d_min in (("Hopper-v5", 0.05), ("Ant-v5", 0.02), ("Pendulum-v1", 0.05)):
                made = resolve(env, algorithm=algorithm, **chosen)
                assert made.algorithm.distance == "action"
                assert made.scheme.d_min == d_min

    def test_of_squares_and_of_discrete_actions(self):
        assert resolve("Ant-v5", algorithm="sql").scheme.d_min == 0.02
        for algorithm in ("dqn", "sac_discrete"):
            assert resolve("CartPole-v1", algorithm=algorithm).scheme.d_min == 0.05

    def test_a_value_of_the_users_is_taken_as_it_is(self):
        for distance in ("kl", "action"):
            made = resolve("Hopper-v5", algorithm="sac", d_min=0.07, distance=distance)
            assert made.scheme.d_min == 0.07


class TestAuthorsInitialization:
    """Xavier and independent targets are those of the authors' P3S code."""

    def start(self, scheme: str) -> tuple[str, str]:
        algorithm = resolve("Hopper-v5", scheme, preset="authors").algorithm
        return algorithm.initialization, algorithm.targets_start

    def test_schemes_that_ran_with_another_code(self):
        for scheme in ("single", "cem", "erl", "evorainbow"):
            assert self.start(scheme) == ("fan_in", "online")

    def test_schemes_of_the_p3s_code(self):
        for scheme in ("p3s", "sharing"):
            assert self.start(scheme) == ("xavier", "independent")

    def test_a_value_of_the_users_wins(self):
        fields = {"initialization": "xavier", "targets_start": "independent"}
        algorithm = resolve("Hopper-v5", "single", preset="authors", **fields).algorithm
        assert (algorithm.initialization, algorithm.targets_start) == ("xavier", "independent")


class TestOriginalNetworks:
    """`authors` gives CEM-TD3 and ERL the networks and rates of their own codes."""

    def cem(self, algorithm: str, preset: str) -> tuple:
        made = resolve("Hopper-v5", "cem", algorithm, preset).algorithm
        return made.hidden_sizes, made.for_policy.activation, made.activation

    def test_cem(self):
        for algorithm in ("td3", "ddpg"):
            assert self.cem(algorithm, "authors") == ((400, 300), "tanh", "leaky_relu")
            for preset in ("recommended", "paper"):
                assert self.cem(algorithm, preset) == ((400, 300), "relu", "relu")
        assert self.cem("sac", "authors") == ((256, 256), "relu", "relu")

    def test_erl(self):
        """Its policy is smaller than its value function and learns ten times slower."""
        made = resolve("Swimmer-v5", "erl", "ddpg", "authors").algorithm
        assert {name: getattr(made, name) for name in ERL_DDPG} == ERL_DDPG
        assert made.for_policy.hidden_sizes == (128, 128)
        assert made.for_policy.learning_rate == made.learning_rate / 10 == 5e-5

    def test_erl_otherwise_has_what_the_algorithm_has(self):
        for algorithm, preset in (("td3", "authors"), ("ddpg", "paper"), ("ddpg", "recommended")):
            made = resolve("Swimmer-v5", "erl", algorithm, preset).algorithm
            plain = resolve("Swimmer-v5", "single", algorithm, preset).algorithm
            assert made == plain

    def test_a_value_of_the_users_wins(self):
        fields = {"policy_activation": "relu", "batch_size": 64}
        made = resolve("Swimmer-v5", "erl", "ddpg", "authors", **fields).algorithm
        assert (made.policy_activation, made.batch_size) == ("relu", 64)


class TestRecommended:
    def test_is_the_default_of_every_front_door(self):
        assert resolve("Hopper-v5").preset == "recommended"
        assert parse_train(["Hopper-v5"])[0].preset == "recommended"
        assert inspect.signature(Population).parameters["preset"].default == "recommended"
        study = parse("environments = ['Hopper-v5']", "mine.toml", "mine")
        assert [method.preset for method in study.methods] == ["recommended"]

    def test_a_learner_is_updated_as_often_as_a_single_one(self):
        for count in (2, 4, 8):
            scheme = resolve("Hopper-v5", num_learners=count).scheme
            assert scheme.num_updates == count

    def test_one_learner_is_single(self):
        ours, single = resolve("Hopper-v5", num_learners=1), resolve("Hopper-v5", "single")
        assert ours.algorithm == single.algorithm
        assert ours.scheme.initial_steps == single.scheme.initial_steps

    def test_random_steps_count_over_the_population(self):
        """However many learners there are, together they act at random as long as one alone."""
        for count in (1, 4, 16):
            scheme = resolve("Hopper-v5", num_learners=count).scheme
            assert 1000 - count <= scheme.num_random_steps * count <= 1000
