"""Rates that change over a run: how they are written, what they give, who takes them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import p3s
from p3s.cli.train import parse_train
from p3s.config.run import Config, resolve
from p3s.config.run_file import read_run_file, run_file_text
from p3s.errors import UserError
from p3s.fields.schedules import NUM_POINTS
from p3s.runs.changes import with_changes
from p3s.types import EnvSpec, ObservationSpec
from tests.helpers import SMALL

SPEC = EnvSpec(ObservationSpec((3,)), 1)
WORDS = ["Pendulum-v1", "--algorithm", "td3", "--steps", "1000"]


def algorithm(rate, name: str = "td3", **fields):
    """An algorithm of a run of 1,000 updates."""
    config = resolve("Pendulum-v1", "single", name, steps=1000, updates_per_step=1,
                     learning_rate=rate, **fields)  # fmt: skip
    config.check()
    return config.settled().algorithm


def rates(rate, *steps: int) -> list[float]:
    return [float(algorithm(rate).step_size(step)) for step in steps]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (p3s.linear(1e-3, 1e-5), [1e-3, 5.05e-4, 1e-5, 1e-5]),
        ("linear(1e-5,1e-3)", [1e-5, 5.05e-4, 1e-3, 1e-3]),
        (p3s.cosine(1e-3, 0), [1e-3, 5e-4, 0, 0]),
        ("points(1e-5, 1e-3, 1e-5)", [1e-5, 1e-3, 1e-5, 1e-5]),
        (lambda progress: 1e-3 if progress < 0.5 else 1e-4, [1e-3, 1e-4, 1e-4, 1e-4]),
    ],
)
def test_what_it_gives(rate, expected):
    assert rates(rate, 0, 500, 1000, 4000) == pytest.approx(expected, abs=1e-9)


def test_a_function_is_kept_as_points():
    kept = algorithm(lambda progress: 1e-3 / (1 + progress)).learning_rate
    assert kept.startswith("points(0.001, 0.000990099,")
    assert kept.count(",") == NUM_POINTS - 1


@pytest.mark.parametrize(
    "rate",
    ["linear(1)", "linear(0, 1)", "linear(1e-3, -1)", "points(1)", "cosine(1, nan)", "linear(a, b)",
     "linear", [1], True, lambda progress: -1.0, lambda progress: "x"],
)  # fmt: skip
def test_what_is_none(rate):
    with pytest.raises(UserError, match=r"learning_rate: expected a number or a schedule, linear"):
        algorithm(rate)
    with pytest.raises(UserError, match=r"learning_rate must be above 0, not -1\.0"):
        algorithm(-1)


def test_adam_takes_its_steps():
    """The policy steps at every second update, and its schedule ends with the run too."""
    made = algorithm("linear(0.1, 0.01)", learning_rate_steps=4)
    for each, expected in (
        (made, [0.1, 0.0775, 0.055, 0.0325, 0.01]),
        (made.for_policy, [0.1, 0.055, 0.01, 0.01, 0.01]),
    ):
        params, state, sizes = jnp.float32(0.0), made.start_optimizer(jnp.float32(0.0)), []
        for _ in expected:
            before = float(params)
            params, state, _, _ = each.minimize(lambda x: (x, (x, None)), params, state)
            sizes.append(before - float(params))
        assert sizes == pytest.approx(expected, rel=1e-3)


def test_a_policys_own_beside_a_number():
    made = algorithm(0.1, policy_learning_rate="cosine(0.1, 0.01)")
    assert [float(made.step_size(step)) for step in (0, 1000)] == pytest.approx([0.1, 0.1])
    policy = made.for_policy.step_size
    assert [float(policy(step)) for step in (0, 500)] == pytest.approx([0.1, 0.01])


def test_who_falls_by_itself_takes_one_too():
    assert float(algorithm("linear(1e-3, 1e-4)", "xqc").step_size(1000)) == pytest.approx(1e-4)
    assert float(algorithm(1e-3, "xqc").step_size(1000)) == pytest.approx(1e-4)
    assert float(algorithm(1e-3, "flashsac").step_size(1000)) == pytest.approx(5e-4)


def test_rollouts_count_minibatches():
    config = resolve("CartPole-v1", "rollout", "ppo", steps=20_480, learning_rate="linear(1e-3, 0)")
    made = config.settled().algorithm
    assert made.learning_rate_steps == 3200  # ten rollouts, ten epochs of 32 minibatches
    assert float(made.step_size(1600)) == pytest.approx(5e-4)


def test_a_number_stays_a_number():
    assert algorithm(1e-3).step_size == 1e-3
    assert algorithm(1e-3).learning_rate_steps is None


def test_command_line_files_and_records(tmp_path):
    config, _ = parse_train([*WORDS, "--learning-rate", "linear(3e-4, 1e-5)"])
    assert config.algorithm.learning_rate == "linear(3e-4, 1e-5)"
    assert config.algorithm.learning_rate_steps == 1000
    assert parse_train([*WORDS, "--learning-rate", "3e-4"])[0].algorithm.learning_rate == 3e-4
    file = tmp_path / "run.toml"
    file.write_text(run_file_text(config))
    assert read_run_file(file).fields["learning_rate"] == "linear(3e-4, 1e-5)"
    assert Config.from_json(config.to_json()) == config
    file.write_text('env = "Pendulum-v1"\nlearning_rate = "linear(3e-4)"\n')
    with pytest.raises(UserError, match=r"run\.toml:2: learning_rate: expected a number or a sch"):
        parse_train(["--config", str(file)])


def test_who_takes_none():
    with pytest.raises(UserError, match="learning_rate is a schedule, and learners may differ"):
        resolve("Pendulum-v1", "pbt", "td3", learning_rate="linear(1e-3, 1e-4)").check()


def test_a_run_that_has_begun_keeps_to_numbers_or_to_schedules():
    number, schedule = (
        resolve("Pendulum-v1", learning_rate=rate, steps=1000).settled()
        for rate in (1e-3, "linear(1e-3, 1e-4)")
    )
    other = with_changes(schedule, {"learning_rate": "cosine(1e-4, 0)"}, SPEC).algorithm
    assert (other.learning_rate, other.learning_rate_steps) == ("cosine(1e-4, 0)", 1000)
    for config, rate in ((number, "linear(1e-3, 1e-4)"), (schedule, 1e-3)):
        with pytest.raises(UserError, match=r"learning_rate cannot become .* that has begun"):
            with_changes(config, {"learning_rate": rate}, SPEC)


def test_it_is_learned_with_and_resumes_to_the_bit(tmp_path, capsys):
    few = {**SMALL, "initial_steps": 3, "evaluation_period": 0, "metrics_period": 1000}
    fields = {**few, "learning_rate": lambda progress: 1e-3 * (1 - progress) + 1e-5}
    whole = p3s.Population("Pendulum-v1", steps=60, **fields)
    whole.learn(40, progress_bar=False).save(tmp_path / "saved")
    assert capsys.readouterr().err == ""
    again = p3s.Population.load(tmp_path / "saved")
    for each in (whole, again):
        each.learn(20, progress_bar=False)
    ours, theirs = whole.get_parameters(), again.get_parameters()
    assert all((ours[name] == theirs[name]).all() for name in ours)
    rate = whole.training.config.algorithm.step_size
    assert float(rate(9)) > 1.3 * float(rate(12))


def test_steps_that_do_not_fit_are_said_once(capsys):
    population = p3s.Population("Pendulum-v1", **{**SMALL, "learning_rate": "linear(1e-3, 1e-4)"})
    population.learn(8, progress_bar=False)
    population.learn(8, progress_bar=False)
    said = capsys.readouterr().err
    assert said.count("Population(..., steps=8)") == 1
