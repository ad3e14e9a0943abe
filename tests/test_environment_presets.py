"""What `p3s train ENV` takes where nothing is said."""

from __future__ import annotations

import dataclasses

import pytest

import p3s
from p3s import Population, evaluate
from p3s.algorithms import ALGORITHMS
from p3s.cli.presets import known_ids
from p3s.cli.train import parse_train
from p3s.config.environments import ENVIRONMENTS, default_algorithm
from p3s.config.run import resolve
from p3s.config.suitability import check_environment
from p3s.envs import make_env, parse_name
from p3s.schemes import SCHEMES
from tests.helpers import call

GOOD = {
    "CartPole": 475,
    "Pendulum": -200,
    "MountainCarContinuous": 90,
    "InvertedPendulum": 950,
}
"""Returns that the cheap ones have to reach."""


@pytest.mark.parametrize("family", ENVIRONMENTS)
def test_every_preset_makes_a_run(family):
    preset, env = ENVIRONMENTS[family], known_ids()[family]
    values = preset.values(preset.algorithm, on_policy=False)
    for scheme in ("single", "p3s"):
        config = resolve(env, scheme)
        config.check()
        assert config.algorithm.name == preset.algorithm
        # No other layer overrides the environment's.
        given = {"steps": config.options.steps, **vars(config.algorithm)}
        assert {name: given[name] for name in values} == values
    if preset.group == "Box2D":
        pytest.importorskip("Box2D")
    check_environment(config, make_env(env))


def test_fields_are_fields_of_the_algorithm_and_change_something():
    for preset in ENVIRONMENTS.values():
        defaults = {f.name: f.default for f in dataclasses.fields(ALGORITHMS[preset.algorithm])}
        for name, value in {**preset.fields, "discount_factor": preset.discount_factor}.items():
            assert value != defaults[name], name


def test_values_belong_to_the_recommended_preset():
    assert resolve("CartPole-v1", algorithm="dqn", preset="paper").options.steps == 1_000_000
    assert resolve("Swimmer-v5", preset="authors").algorithm.discount_factor == 0.99
    assert resolve("CartPole-v1", preset="paper").algorithm.name == "dqn"


def test_another_algorithm_keeps_its_fields_but_looks_as_far_ahead():
    other = resolve("Pendulum-v1", algorithm="sac").algorithm
    assert other.hidden_sizes == ALGORITHMS["sac"]().hidden_sizes
    assert resolve("Swimmer-v5", algorithm="sac").algorithm.discount_factor == 0.9999
    assert resolve("Swimmer-v5", "rollout", "ppo").algorithm.discount_factor == 0.99


def test_the_user_wins():
    config = resolve("CartPole-v1", steps=7, hidden_sizes=(8,))
    assert (config.options.steps, config.algorithm.hidden_sizes) == (7, (8,))
    config, _ = parse_train(["CartPole-v1", "--algorithm", "sac_discrete", "--steps", "9"])
    assert (config.algorithm.name, config.options.steps) == ("sac_discrete", 9)


def test_unknown_environments_get_td3():
    assert default_algorithm(parse_name("Mine-v0")) == "td3"
    config = resolve("Mine-v0")
    assert (config.algorithm.name, config.options.steps) == ("td3", 1_000_000)


def test_the_command_line_and_python_agree():
    config, _ = parse_train(["CartPole-v1"])
    assert config == dataclasses.replace(resolve("CartPole-v1"), env=config.env)
    assert repr(Population("CartPole-v1")).count("dqn") == 1


def test_every_scheme_takes_them():
    for scheme in set(SCHEMES) - {"rollout"}:
        resolve("Pendulum-v1", scheme).check()


def test_list(capsys):
    code, out, _ = call(capsys, "presets")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        known_ids()[family] for family in ENVIRONMENTS
    ]
    code, out, _ = call(capsys, "presets", "box2d")
    assert {line.split()[0] for line in out.splitlines()[1:]} == {
        known_ids()[family] for family, preset in ENVIRONMENTS.items() if preset.group == "Box2D"
    }
    code, out, errors = call(capsys, "presets", "nonsense")
    assert code == 2
    assert errors.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", GOOD)
def test_the_cheap_ones_learn_without_a_flag(family, tmp_path, capsys):
    assert call(capsys, "train", known_ids()[family], "--out", tmp_path / "run")[0] == 0
    assert evaluate(p3s.load(tmp_path / "run"), episodes=20).mean() >= GOOD[family]
