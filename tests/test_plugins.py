"""Algorithms and schemes from outside the package: the worked example, names, modules, files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import p3s
from p3s.algorithms import ALGORITHMS, TD3, Algorithm
from p3s.cli import main
from p3s.cli.train import parse_train
from p3s.config.run import Config, resolve
from p3s.errors import UserError
from p3s.networks import MLP, NETWORKS, Network
from p3s.plugins import loading as plugins
from p3s.runs import opening
from p3s.runs.records import read_config, write_config
from p3s.schemes import SCHEMES, Sharing
from tests.helpers import ROOT, record, small_config, small_training

pytestmark = pytest.mark.usefixtures("as_it_was")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The worked example, trained by the real command in a process of its own and then resumed."""
    folder = tmp_path_factory.mktemp("extending")
    fields = [
        "--hidden-sizes", "8", "--batch-size", "8", "--num-learners", "2",
        "--initial-steps", "20", "--review-period", "50", "--buffer-size", "1000",
        "--metrics-period", "200", "--evaluation-period", "200", "--evaluation-episodes", "1",
        "--checkpoint-period", "200",
    ]  # fmt: skip
    train = ["train", "Pendulum-v1", "--algorithm", "examples.awac:AWAC", *fields]
    p3s_command(*train, "--steps", "600", "--out", folder / "whole")
    p3s_command(*train, "--steps", "400", "--out", folder / "resumed")
    p3s_command("resume", folder / "resumed", "--steps", "600")
    return folder


def p3s_command(*arguments) -> subprocess.CompletedProcess:
    """From the folder that `examples` is in, as the documentation has it."""
    command = [sys.executable, "-m", "p3s", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


class TestWorkedExample:
    def test_it_is_short_and_in_the_documentation(self):
        text = (ROOT / "examples/awac.py").read_text()
        assert len(text.splitlines()) <= 80
        assert text in (ROOT / "docs/extending.md").read_text()
        assert (ROOT / "examples/residual.py").read_text() in (
            ROOT / "docs/extending.md"
        ).read_text()

    def test_trains_and_resumes_to_the_bit(self, run):
        whole, resumed = (record(run / name) for name in ("whole", "resumed"))
        assert whole == resumed
        assert [row["step"] for row in whole["evaluations"]] == [200, 400, 600]
        assert whole["metrics"][-1]["learners"]["policy_loss"][0] > 0

    def test_a_scheme_that_it_cannot_serve_is_refused(self):
        """Its policy step leaves out what `dvd` adds to the losses of policies."""
        config = resolve("Pendulum-v1", "dvd", "examples.awac:AWAC")
        with pytest.raises(UserError, match="of awac takes no further terms"):
            config.check()

    def test_config_names_the_module(self, run):
        written = json.loads((run / "whole/config.json").read_text())
        assert (written["algorithm"], written["modules"]) == ("awac", ["examples.awac"])
        assert resolve("Pendulum-v1").to_json()["modules"] == []

    def test_evaluates(self, run, capsys):
        with pytest.raises(SystemExit) as exit_:
            main(["evaluate", str(run / "whole"), "--episodes", "1"])
        assert exit_.value.code == 0
        assert "over 1 episodes" in capsys.readouterr().out

    def test_a_policy_file_imports_nothing(self, run, capsys):
        path = run / "whole/policy.safetensors"
        with pytest.raises(UserError, match="algorithm 'awac' is not known: import the module"):
            p3s.load(path)
        assert "examples.awac" not in sys.modules
        for words, code in (([], 2), (["--import", "examples.awac"], 0)):
            with pytest.raises(SystemExit) as exit_:
                main([*words, "evaluate", str(path), "--episodes", "1"])
            assert exit_.value.code == code
        assert "is not known: import the module" in capsys.readouterr().err

    def test_every_other_scheme_takes_it(self):
        for scheme in set(SCHEMES) - {"rollout", "dvd"}:
            config = small_config("Pendulum-v1", scheme, algorithm="examples.awac:AWAC")
            config.check()
            assert Config.from_json(config.to_json()) == config

    def test_a_run_whose_module_is_gone(self, run, tmp_path):
        write_config(tmp_path, {**read_config(run / "whole"), "modules": ["gone"]})
        with pytest.raises(UserError, match="the module 'gone' cannot be imported"):
            opening.load_config(tmp_path)


def test_the_scheme_of_the_examples_writes_down_how_far_learners_are_apart():
    scheme = plugins.find(SCHEMES, "scheme", "examples.own_scheme:Observed")
    training = small_training("Pendulum-v1", scheme=scheme.name, evaluation_period=0)
    training.run(200)
    apart = [training.last_review["apart"]]
    training.run(400)
    apart.append(training.last_review["apart"])
    assert 0 < apart[0] < apart[1]


class TestNames:
    def test_command_line_makes_options_of_the_fields(self):
        words = ["Pendulum-v1", "--algorithm", "examples.awac:AWAC", "--temperature", "0.5"]
        config, _ = parse_train(words)
        assert (config.algorithm.name, config.algorithm.temperature) == ("awac", 0.5)

    @pytest.mark.parametrize(
        ("name", "message"),
        [("examples.nothing:X", "'examples.nothing' cannot be imported"),
         ("examples.awac:Nothing", "'examples.awac' has no 'Nothing'"),
         ("examples.awac:bootstrap", "cannot be used as algorithm"),
         ("p3s.schemes.p3s:P3S", "cannot be used as algorithm")],
    )  # fmt: skip
    def test_names_that_mean_nothing(self, name, message):
        with pytest.raises(UserError, match=message):
            resolve("Pendulum-v1", algorithm=name)

    def test_a_name_is_taken_once(self):
        with pytest.raises(UserError, match=r"'td3' is taken by p3s\.algorithms\.td3\.TD3"):

            @p3s.register
            @dataclass(frozen=True, kw_only=True)
            class Another(TD3):
                name: ClassVar[str] = "td3"

    def test_what_cannot_be_registered(self):
        with pytest.raises(UserError, match="is not an algorithm, scheme or network: derive it"):
            p3s.register(dict)
        with pytest.raises(UserError, match="must be a frozen dataclass with a name"):

            @p3s.register
            class Nameless(TD3):
                pass

        with pytest.raises(UserError, match="Bare must be derived from OffPolicy"):

            @p3s.register
            @dataclass(frozen=True, kw_only=True)
            class Bare(Algorithm):
                name: ClassVar[str] = "bare"

    def test_presets_leave_the_namesake_of_a_scheme_field_alone(self):
        @p3s.register
        @dataclass(frozen=True, kw_only=True)
        class Damped(TD3):
            name: ClassVar[str] = "damped"
            damping: float = 0.1

        config = resolve("Pendulum-v1", "cem", "damped", preset="authors")
        assert (config.algorithm.damping, config.scheme.damping) == (0.1, 1e-3)
        assert config.algorithm.distance_reduction == "mean"

    def test_network_from_outside(self):
        @p3s.register
        @dataclass(frozen=True, kw_only=True)
        class Plain(MLP):
            """Dense layers by another name."""

            name: ClassVar[str] = "plain"

        assert NETWORKS["plain"] is Plain
        config = resolve("Pendulum-v1", network="plain")
        config.check()
        assert config.to_json()["modules"] == [__name__]
        with pytest.raises(UserError, match=r"'mlp' is taken by p3s\.networks\.models\.MLP"):

            @p3s.register
            @dataclass(frozen=True, kw_only=True)
            class Another(Network):
                name: ClassVar[str] = "mlp"

    def test_scheme_from_outside(self):
        @p3s.register
        @dataclass(frozen=True, kw_only=True)
        class Loners(Sharing):
            """Sharing by another name."""

            name: ClassVar[str] = "Loners"

        config = resolve("Pendulum-v1", "Loners")
        assert isinstance(config.scheme, Loners)
        assert config.to_json()["modules"] == [__name__]


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

from p3s.algorithms import TD3


@dataclass(frozen=True, kw_only=True)
class Plugged(TD3):
    '''TD3 by another name.'''

    name: ClassVar[str] = "plugged"
"""


class TestEntryPoints:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """An installed package, as importlib.metadata sees one."""
        (tmp_path / "plugin.py").write_text(PLUGIN)
        info = tmp_path / "plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[p3s.algorithms]\nplugged = plugin:Plugged\n[p3s.schemes]\nbroken = plugin:Nothing\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        yield
        sys.modules.pop("plugin", None)

    @pytest.mark.filterwarnings("ignore:p3s.schemes. plugin.Nothing cannot be loaded")
    def test_listed_and_found(self, package, capsys):
        assert "plugged" not in ALGORITHMS
        with pytest.raises(SystemExit):
            main(["algorithms"])
        assert "plugged      continuous  TD3 by another name." in capsys.readouterr().out
        del ALGORITHMS["plugged"]
        assert resolve("Pendulum-v1", algorithm="plugged").algorithm.name == "plugged"

    def test_a_broken_one_is_named(self, package):
        with pytest.warns(UserWarning, match=r"p3s\.schemes: plugin:Nothing cannot be loaded"):
            plugins.load_entry_points()


def test_a_recorded_module_makes_its_classes_known_without_a_decorator(tmp_path, monkeypatch):
    (tmp_path / "undecorated.py").write_text(PLUGIN.replace("plugged", "undecorated"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins.import_module("undecorated")
    assert ALGORITHMS.pop("undecorated").__module__ == "undecorated"
