"""Presets: the values they give, for every scheme and environment."""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import pytest

from p3s.algorithms.parts.squashed_gaussian import Gaussian, gaussian_kl
from p3s.cli.train import parse_train
from p3s.config import resolve
from p3s.population import Population
from p3s.presets import KL_PER_SQUARE, PRESETS
from p3s.study.reading import parse
from tests.helpers import SMALL


def test_random_phase():
    names = ("paper", "authors")
    text, code = (resolve("HalfCheetah-v5", preset=preset).scheme for preset in names)
    assert (text.initial_steps, text.num_random_steps) == (2500, 2499)
    assert (code.initial_steps, code.num_random_steps) == (2500, 3000)
    assert resolve("Hopper-v5", preset="authors").scheme.num_random_steps == 1000
    assert resolve("Hopper-v5", "single").scheme.initial_steps == 1000


class TestOriginalCodes:
    """SAC of 2018 and SQL: when their own codes learn and act, and how they start."""

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize(
        ("algorithm", "env", "scheme", "initial_steps", "random_steps"),
        [("sac_2018", "Hopper-v5", "single", 1000, 1000),
         ("sac_2018", "HalfCheetah-v5", "single", 1000, 10_000),
         ("sac_2018", "Walker2d-v5", "p3s", 250, 250),
         ("sac_2018", "Delayed Ant-v1", "p3s", 250, 2500),
         ("sql", "Hopper-v5", "single", 1000, 0),
         ("sql", "HalfCheetah-v5", "p3s", 250, 0)],
    )  # fmt: skip
    def test_random_phase(self, preset, algorithm, env, scheme, initial_steps, random_steps):
        made = resolve(env, scheme, algorithm, preset).scheme
        assert (made.initial_steps, made.num_random_steps) == (initial_steps, random_steps)

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("algorithm", ["sac_2018", "sql"])
    def test_start_with_xavier(self, preset, algorithm):
        for scheme in ("single", "p3s"):
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

    @pytest.mark.parametrize("algorithm", ["redq", "droq"])
    @pytest.mark.parametrize(
        ("scheme", "preset", "updates", "initial_steps"),
        [("single", "paper", 20, 5000), ("single", "recommended", 20, 5000),
         ("p3s", "paper", 20, 1250), ("p3s", "recommended", 80, 1250),
         ("distributed", "paper", 80, 1250)],
    )  # fmt: skip
    def test_rhythm(self, algorithm, scheme, preset, updates, initial_steps):
        made = resolve("Hopper-v5", scheme, algorithm, preset).scheme
        assert (made.num_updates, made.initial_steps) == (updates, initial_steps)
        assert resolve("Hopper-v5", scheme, algorithm, updates_per_step=1).scheme.num_updates == 1

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
    @pytest.mark.parametrize("scheme", ["p3s", "sharing", "resetting", "center", "pbt", "pb2"])
    def test_of_a_population(self, scheme, preset):
        assert self.targets(scheme, preset=preset) == (0.005, 1)

    def test_of_one_learner(self):
        for scheme in ("single", "distributed"):
            assert self.targets(scheme) == (1.0, 50)
        assert self.targets("p3s", num_learners=1) == (1.0, 50)

    def test_a_value_of_the_users_wins(self):
        assert self.targets("p3s", target_rate=1.0, target_period=9) == (1.0, 9)

    def test_other_algorithms_keep_theirs(self):
        assert resolve("Hopper-v5", algorithm="sql").algorithm.target_rate == 1.0


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build_and_survive_json(preset):
    for env in ("Hopper-v1", "Delayed Ant-v1", "Pendulum-v1", "p3s/DelayedWalker2d-v5"):
        config = resolve(env, **{**SMALL, "preset": preset})
        config.check()
        assert type(config).from_json(config.to_json()) == config


def test_presets_differ_in_every_row():
    paper, authors = PRESETS["paper"], PRESETS["authors"]
    assert paper.keys() == authors.keys()
    assert all(paper[name] != authors[name] for name in paper)


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

    @pytest.mark.parametrize(
        "algorithm", ["sac", "sac_2018", "redq", "droq", "tqc", "crossq", "xqc", "flashsac"]
    )
    def test_of_a_gaussian_kl(self, algorithm):
        """Normals with std 0.1 whose means are apart by ½‖.‖² = d have a KL of d / 0.1²."""
        for env, d_min in (("Hopper-v5", 5.0), ("Ant-v5", 2.0), ("Pendulum-v1", 5.0)):
            assert resolve(env, algorithm=algorithm, distance="kl").scheme.d_min == d_min
            assert resolve(env, algorithm=algorithm, preset="paper").scheme.d_min == d_min
            in_actions = resolve(env, algorithm=algorithm)
            assert in_actions.algorithm.distance == "action"
            assert in_actions.scheme.d_min == d_min / KL_PER_SQUARE
        squared = Gaussian(jnp.array([[0.3, 0.1]]), jnp.log(jnp.full((1, 2), 0.1)))
        other = squared._replace(mean=jnp.zeros((1, 2)))
        assert gaussian_kl(squared, other)[0] == pytest.approx(0.05 * KL_PER_SQUARE)

    def test_of_squares_and_of_discrete_actions(self):
        assert resolve("Ant-v5", algorithm="sql").scheme.d_min == 0.02
        for algorithm in ("dqn", "sac_discrete"):
            assert resolve("CartPole-v1", algorithm=algorithm).scheme.d_min == 0.05

    def test_a_value_of_the_users_is_taken_as_it_is(self):
        assert resolve("Hopper-v5", algorithm="sac", d_min=0.05).scheme.d_min == 0.05


class TestAuthorsInitialization:
    """Xavier and independent targets are those of the authors' P3S code."""

    def start(self, scheme: str) -> tuple[str, str]:
        algorithm = resolve("Hopper-v5", scheme, preset="authors").algorithm
        return algorithm.initialization, algorithm.targets_start

    @pytest.mark.parametrize("scheme", ["single", "cem", "erl"])
    def test_schemes_that_ran_with_another_code(self, scheme):
        assert self.start(scheme) == ("fan_in", "online")

    @pytest.mark.parametrize("scheme", ["p3s", "sharing"])
    def test_schemes_of_the_p3s_code(self, scheme):
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

    @pytest.mark.parametrize("algorithm", ["td3", "ddpg"])
    def test_cem(self, algorithm):
        assert self.cem(algorithm, "authors") == ((400, 300), "tanh", "leaky_relu")
        assert self.cem(algorithm, "recommended") == ((400, 300), "relu", "relu")
        assert self.cem(algorithm, "paper") == ((400, 300), "relu", "relu")
        assert self.cem("sac", "authors") == ((256, 256), "relu", "relu")

    def test_erl(self):
        made = resolve("Swimmer-v5", "erl", "ddpg", "authors").algorithm
        policy = made.for_policy
        assert (policy.hidden_sizes, policy.activation) == ((128, 128), "tanh")
        assert (made.hidden_sizes, made.activation) == ((400, 300), "elu")
        assert policy.layer_norm
        assert made.layer_norm
        assert (policy.learning_rate, made.learning_rate) == (5e-5, 5e-4)
        assert (made.batch_size, made.target_rate) == (128, 0.001)
        assert (made.exploration_noise_kind, made.exploration_noise) == ("ornstein_uhlenbeck", 0.2)
        assert made.exploration_noise_reversion == 0.15
        assert (made.initialization, made.targets_start) == ("fan_in", "online")

    def test_erl_otherwise_has_what_the_algorithm_has(self):
        for algorithm, preset in (("td3", "authors"), ("ddpg", "paper"), ("ddpg", "recommended")):
            made = resolve("Swimmer-v5", "erl", algorithm, preset).algorithm
            plain = resolve("Swimmer-v5", "single", algorithm, preset).algorithm
            assert made == plain

    def test_a_value_of_the_users_wins(self):
        fields = {"policy_activation": "relu", "batch_size": 64}
        made = resolve("Swimmer-v5", "erl", "ddpg", "authors", **fields).algorithm
        assert (made.policy_activation, made.batch_size) == ("relu", 64)


def test_beta_is_bounded_in_all():
    limits = {preset: resolve("Hopper-v5", preset=preset).scheme.beta_limit for preset in PRESETS}
    assert limits == {"paper": 1e9, "authors": 1000.0, "recommended": 1000.0}


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

    def test_the_chief_ignores_the_random_phase(self):
        assert resolve("Hopper-v5").scheme.skip_random_episodes
