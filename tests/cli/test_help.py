"""What somebody who begins is shown."""

from __future__ import annotations

import re
import shlex

import gymnasium
import pytest

from p3s.cli import COMMANDS, help
from p3s.cli.help import ESSENTIAL
from tests.helpers import call


def options_in(output: str) -> set[str]:
    return set(re.findall(r"^(?: |│) +--([a-z][a-z-]*)", output, re.MULTILINE))


def test_three_commands_to_begin_with(capsys, tmp_path, monkeypatch, run_arguments):
    monkeypatch.chdir(tmp_path)
    code, output, _ = call(capsys)
    assert code == 0
    commands = re.findall(r"^  p3s (.+?)  ", output, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "watch", "evaluate"]
    assert f"all {len(COMMANDS)} commands" in output
    # They work in this order; a short run here.
    shorter = {"train": [*run_arguments, "--steps", "200"], "watch": ["--once"]}
    for command in commands:
        words = shlex.split(command)
        assert call(capsys, *words, *shorter.get(words[0], []))[0] == 0


class TestHelpOfTrain:
    @pytest.fixture(autouse=True)
    def wide(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")

    def test_the_options_that_matter(self, capsys):
        code, output, _ = call(capsys, "train", "Pendulum-v1", "--help")
        assert code == 0
        expected = {name.replace("_", "-") for name in ESSENTIAL}
        assert options_in(output) == expected
        assert len(expected) == 21
        assert output.count("\n") < 60
        assert "--help-all" in output
        assert (
            "  --steps                 Environment steps in total, over all learners. [20000]"
            in output
        )
        assert (
            "  --hidden-sizes          Widths of the hidden layers of every network. [64 64]"
            in output
        )

    def test_with_the_names_that_are_given(self, capsys):
        words = ["Ant-v5", "--scheme", "distributed", "--algorithm", "sac", "--seed", "7", "-h"]
        code, output, _ = call(capsys, "train", *words)
        assert code == 0
        assert {"envs-per-learner"} <= options_in(output)
        assert re.search(r"--seed +Everything random follows from this. \[7\]", output)
        assert call(capsys, "train", "--help")[0] == 0

    def test_all_of_them(self, capsys):
        code, output, errors = call(capsys, "train", "Pendulum-v1", "--help-all")
        assert (code, errors) == (0, "")
        for name in ("d-min", "checkpoint-period", "seed", "scale-images"):
            assert f"--{name} " in output or f"--{name}," in output
        assert output.count("\n") > 200

    def test_bad_words_are_still_refused(self, capsys):
        code, _, errors = call(capsys, "train", "Pendulum-v1", "--scheme", "p4s", "--help")
        assert (code, errors.count("\n")) == (2, 1)
        assert "did you mean p3s" in errors


class TestTrainAlone:
    def test_what_is_installed(self, capsys, monkeypatch):
        monkeypatch.setattr(help, "_imports", lambda module: module == "mujoco")
        code, output, errors = call(capsys, "train")
        assert code == 2
        assert errors == "p3s: give the environment first: p3s train ENV [options]\n"
        installed, missing = output.split("Not installed:")
        shown = re.findall(r"(?<=[ ,])(?!Name)[A-Z]\w+-v\d+(?=[,\n])", installed)
        assert {"CartPole-v1", "Hopper-v5"} <= set(shown)
        assert all(env_id in gymnasium.registry for env_id in shown)
        assert "Box2D                   pip install 'p3s[box2d]'" in missing
        assert "LunarLander" not in output

    @pytest.mark.parametrize("module", ["json", "no_such_module_at_all"])
    def test_what_cannot_be_imported_is_not_installed(self, module):
        assert help._imports(module) is (module == "json")
