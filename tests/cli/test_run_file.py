"""One run as a TOML file: written, read, changed on the command line, and refused by its line."""

from __future__ import annotations

import pytest

from p3s.cli.train import parse_train
from p3s.config.run import resolve, resolve_spec
from p3s.config.run_file import read_run_file, run_file_text
from p3s.envs import parse_name
from p3s.errors import UserError
from tests.helpers import call


@pytest.mark.parametrize(
    ("scheme", "algorithm"), [("p3s", "td3"), ("cem", "td3"), ("pbt", "sac"), ("rollout", "ppo")]
)
def test_written_and_read(tmp_path, scheme, algorithm):
    env = parse_name("Delayed Ant-v1", arguments={"frame_skip": 3, "a b": "c"})
    config = resolve(env, scheme, algorithm, "paper", seed=3, steps=77, stop_at=1e5)
    file = tmp_path / "run.toml"
    file.write_text(run_file_text(config))
    again = resolve_spec(read_run_file(file))
    assert (again.scheme, again.options, again.preset) == (
        config.scheme, config.options, config.preset
    )  # fmt: skip
    assert again.env.to_json() == config.env.to_json()


def test_the_command_line_wins(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('env = "Pendulum-v1"\nnum_learners = 2\nsteps = 5000\nd_min = 0.3\n')
    config, _ = parse_train(["--config", str(file), "--steps", "700", "--rho", "3"])
    assert config.env.id == "Pendulum-v1"
    assert (config.options.steps, config.scheme.num_learners) == (700, 2)
    assert (config.scheme.d_min, config.scheme.rho) == (0.3, 3.0)
    config, _ = parse_train(["Hopper-v5", "--config", str(file), "--num-learners", "3"])
    assert (config.env.id, config.scheme.num_learners) == ("Hopper-v5", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('env = "Pendulum-v1"\nsteps = "many"', ":2: steps: expected a whole number"),
        ('env = "Pendulum-v1"\n\nd_mni = 3', ":3: unknown field 'd_mni': did you mean d_min"),
        ('env = "Pendulum-v1"\nscheme = "p3z"', ":2: unknown scheme 'p3z': did you mean p3s"),
        ('env = "Pendulum-v1"\nrho = -1', ":2: rho must be"),
        ('env = "Pendulum-v1"\nalgorithm = "td4"', ":2: unknown algorithm 'td4'"),
        ('env = "Pendulum-v1"\npreset = "papr"', ":2: unknown preset 'papr'"),
        ('env = "Pendulum-v1"\nalgorithm = "ppo"', ":2: ppo learns from its own latest steps"),
        ('env = "Pendulum-v1"\ndelay = 0', ":2: delay must be a whole number of at least 1"),
        ('env = "Pendulum-v1"\nwrappers = "a:B"', ":2: wrappers: expected a list"),
        ('env = "Pendulum-v1"\nloggers = [3]', ":2: loggers: expected text, not 3"),
        ('env = "Pendulum-v1"\nenv_kwargs = {since = 2000-01-01}', ":2: env_kwargs: numbers"),
        ('env = "Pendulum-v1"\nscheme = "single"\nnum_learners = 2', ":3: scheme single has one"),
        ('env = "Pendulum-v1"\nshards = 3\nexchange_period = 900', ":3: exchange_period is 900"),
        ('env = "Pendulum-v1"\nnetwork = "nonet"', ":2: network 'nonet' is not known"),
        ('env = "Pendulum-v1"\nsteps = 9\nstop_at = 3\nevaluation_period = 0', ":3: stop_at"),
        ('env = "Pendulum-v1"\ngamma = 0.9', ":2: gamma is called discount_factor here"),
        ("steps = 3", ":1: which environment?"),
        ("env = 3", ":1: env: expected text, not 3"),
        ("env = ", ":1: invalid TOML"),
        ('env = "Pendulum-v1"\n[fields]\nrho = 2', ":2: unknown field 'fields'"),
    ],
)
def test_a_wrong_key_is_named_with_its_line(tmp_path, capsys, text, message):
    file = tmp_path / "run.toml"
    file.write_text(text)
    code, _, errors = call(capsys, "train", "--config", file)
    assert code == 2
    assert f"{file}{message}" in errors
    assert errors.count("\n") == 1


def test_an_error_about_the_command_line_does_not_name_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('env = "Pendulum-v1"\nscheme = "single"\n')
    words = ["--config", str(file)]
    with pytest.raises(UserError, match=r"^scheme single has one learner"):
        parse_train([*words, "--num-learners", "2"])
    file.write_text('env = "Pendulum-v1"\nscheme = "single"\nrho = 2.0\n')
    with pytest.raises(UserError, match=rf"^{file}:3: rho is a field of p3s"):
        parse_train(words)
    assert parse_train([*words, "--scheme", "p3s"])[0].scheme.rho == 2


def test_no_such_file(capsys):
    code, _, errors = call(capsys, "train", "--config", "nowhere.toml")
    assert code == 2
    assert "cannot read nowhere.toml: No such file" in errors


def test_saved_by_a_training_and_taken_from_a_run(tmp_path, capsys, run_arguments):
    saved, taken = tmp_path / "saved.toml", tmp_path / "taken.toml"
    words = ["InvertedPendulum-v5", *run_arguments, "--steps", "200", "--no-report"]
    code, _, errors = call(
        capsys, "train", *words, "--save-config", saved, "--out", tmp_path / "run"
    )
    assert code == 0, errors
    assert call(capsys, "config", tmp_path / "run", "--out", taken)[0] == 0
    assert taken.read_text() == saved.read_text()
    again = ["train", "--config", taken, "--out", tmp_path / "again", "--no-report"]
    assert call(capsys, *again)[0] == 0
    policies = [tmp_path / name / "policy.safetensors" for name in ("run", "again")]
    assert policies[0].read_bytes() == policies[1].read_bytes()
    code, output, _ = call(capsys, "config", tmp_path / "run")
    assert output == saved.read_text()
