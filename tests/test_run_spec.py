"""A run is declared once: command line, file, study and Python are views of the same."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import p3s
from p3s import Population
from p3s.algorithms.td3 import TD3
from p3s.cli.train import parse_train
from p3s.config.run import Config, field_values, resolve, resolve_spec
from p3s.config.run_file import read_run_file
from p3s.config.spec import RunSpec
from p3s.errors import UserError, unknown
from p3s.fields.layers import Layer
from p3s.schemes.sharing import Sharing
from p3s.study.cells import make_cells
from tests.helpers import SMALL, call
from tests.helpers_studies import study_of

WRAPPER = "gymnasium.wrappers:RecordEpisodeStatistics(buffer_length=5)"
FIELDS = {"num_learners": 3, "hidden_sizes": (8,), "steps": 900, "seed": 4, "target_rate": 0.5}


class TestViews:
    """FrozenLake has no preset: its actions tell which algorithm suits it."""

    @pytest.fixture(scope="class")
    def declared(self) -> Config:
        kwargs = {"is_slippery": False}
        spec = RunSpec(
            "FrozenLake-v1", delay=3, env_kwargs=kwargs, wrappers=(WRAPPER,), fields=FIELDS
        )
        config = resolve_spec(spec)
        assert config.algorithm.name == "dqn"
        assert config.env.to_json() == {
            "id": "FrozenLake-v1", "delay": 3, "kwargs": kwargs, "wrappers": [WRAPPER]
        }  # fmt: skip
        return config

    def test_command_line(self, declared):
        words = "FrozenLake-v1 --delay 3 --env-kwargs is_slippery false --num-learners 3 --seed 4"
        words += f" --wrappers {WRAPPER} --hidden-sizes 8 --steps 900 --target-rate 0.5"
        assert parse_train(words.split())[0] == declared

    def test_run_file(self, declared, tmp_path):
        file = tmp_path / "run.toml"
        file.write_text(
            f'env = "FrozenLake-v1"\ndelay = 3\nwrappers = ["{WRAPPER}"]\nnum_learners = 3\n'
            "hidden_sizes = [8]\nsteps = 900\nseed = 4\ntarget_rate = 0.5\n"
            "[env_kwargs]\nis_slippery = false\n"
        )
        config = resolve_spec(read_run_file(file))
        assert config == declared == parse_train(["--config", str(file)])[0]
        assert config.sources["num_learners"] == f"{file}:4"

    def test_study(self, declared):
        study = study_of(
            "steps = 900\nseeds = [4]\n[[environments]]\nid = 'FrozenLake-v1'\ndelay = 3\n"
            f"kwargs = {{is_slippery = false}}\nwrappers = ['{WRAPPER}']\n"
            "[[methods]]\nlabel = 'P3S'\nnum_learners = 3\nhidden_sizes = [8]\ntarget_rate = 0.5"
        )
        (cell,) = make_cells(study)
        assert cell.config == declared

    def test_population(self, declared):
        population = Population(
            "FrozenLake-v1",
            delay=3,
            env_kwargs={"is_slippery": False},
            wrappers=[WRAPPER],
            **FIELDS,
        )
        assert population.training.config == declared

    def test_names(self, declared):
        assert resolve(declared.env, **FIELDS) == declared


class TestAlgorithmOfAStudy:
    """Without a name it is the one that suits each environment."""

    def test_by_environment(self):
        text = "seeds = 1\nenvironments = ['CartPole-v1', 'Pendulum-v1', 'FrozenLake-v1']\n"
        for methods in ("", "[[methods]]\nlabel = 'P3S'"):
            cells = make_cells(study_of(text + methods))
            assert [cell.config.algorithm.name for cell in cells] == ["dqn", "td3", "dqn"]
            assert {cell.method.label for cell in cells} == {"P3S" if methods else "p3s"}

    def test_a_label_names_it_where_all_environments_agree(self):
        for env, scheme, label in (
            ("CartPole-v1", "p3s", "p3s-dqn"),
            ("Hopper-v5", "single", "td3"),
            ("CartPole-v1", "rollout", "ppo"),
        ):
            text = f"environments = ['{env}']\n[[methods]]\nscheme = '{scheme}'"
            assert study_of(text).methods[0].label == label

    def test_a_label_that_would_be_wrong_is_refused(self):
        with pytest.raises(UserError, match=r"^mine\.toml:1: dqn suits FrozenLake-v1: give"):
            make_cells(study_of("environments = ['FrozenLake-v1']"))


class TestWrappers:
    def test_of_a_callable_are_its_own_business(self):
        with pytest.raises(UserError, match="let the callable wrap it") as caught:
            Population(lambda: None, wrappers=[WRAPPER], **SMALL)
        assert caught.value.field == "wrappers"

    def test_are_a_list(self):
        with pytest.raises(UserError, match="wrappers: expected a list"):
            Population("Pendulum-v1", wrappers=WRAPPER, **SMALL)

    def test_of_a_study_from_a_module_that_nobody_imported(self):
        text = "environments = [{id = 'Pendulum-v1', wrappers = ['strange_module:Wrap(a=1)']}]"
        with pytest.raises(UserError, match="names a module that you have not imported"):
            make_cells(study_of(text))


@p3s.register
@dataclass(frozen=True, kw_only=True)
class LayeredAlgorithm(TD3):
    """TD3 with layers that say what others say too."""

    name: ClassVar[str] = "layered"
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("", {"batch_size": 11, "review_period": 11, "distance_reduction": "sum"}),
        Layer("", {"initialization": "orthogonal", "updates_per_step": 3}),
        Layer("", {"learning_rate": 0.5}, when=lambda setting: setting.family == "Hopper"),
    )


@p3s.register
@dataclass(frozen=True, kw_only=True)
class LayeredScheme(Sharing):
    """Sharing likewise."""

    name: ClassVar[str] = "layers"
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("somebody", {"review_period": 22, "learners_start": "identical", "steps": 22}),
    )


class TestLayers:
    def layered(self, env: str = "Hopper-v5", preset: str = "authors", **fields) -> Config:
        return resolve(env, "layers", "layered", preset, **fields)

    def test_order(self):
        """Default, algorithm, scheme, preset, environment, user: each wins over those before."""
        made = self.layered(preset="recommended")
        assert made.algorithm.policy_period == TD3.policy_period
        assert made.algorithm.batch_size == 11
        assert made.scheme.review_period == 22
        assert made.scheme.learners_start == "independent"
        assert made.algorithm.distance_reduction == "mean"
        assert made.options.steps == 1_000_000
        assert self.layered(preset="recommended", steps=7, batch_size=8).options.steps == 7

    def test_sources(self):
        sources = self.layered(preset="recommended", batch_size=8).sources
        expected = {
            "policy_period": None,
            "learning_rate": "algorithm layered",
            "review_period": "scheme layers (somebody)",
            "learners_start": "preset recommended",
            "steps": "environment Hopper (P3S, Appendix I)",
            "batch_size": "given",
        }
        assert {name: sources.get(name) for name in expected} == expected

    def test_when(self):
        assert self.layered().algorithm.learning_rate == 0.5
        assert self.layered("Ant-v5").algorithm.learning_rate == TD3.learning_rate

    def test_a_preset_leaves_alone_how_an_algorithm_starts_and_multiplies_its_updates(self):
        made = self.layered()
        assert made.algorithm.initialization == "orthogonal"
        assert made.scheme.updates_per_step == 3 * made.scheme.num_envs
        assert self.layered(preset="paper").scheme.updates_per_step == 3

    def test_every_value_that_differs_from_its_default_has_a_source(self):
        for scheme, algorithm in (
            ("p3s", "xqc"),
            ("cem", "td3"),
            ("pbt", "sac"),
            ("rollout", "ppo"),
        ):
            made = resolve("Swimmer-v5", scheme, algorithm, "authors", steps=5000)
            for part in (made.options, made.scheme, made.algorithm):
                values = field_values(part)
                for name, value in values.items():
                    default = type(part).__dataclass_fields__[name].default
                    assert value == default or made.sources.get(name), name

    def test_a_value_that_follows_from_the_steps_says_so(self):
        made = resolve("Hopper-v5", "single", "xqc", steps=50)
        assert made.sources["learning_rate_steps"] == "follows from the steps"

    def test_sources_are_no_part_of_what_a_run_is(self):
        made = resolve("Hopper-v5", num_learners=4)
        assert made == replace(made, sources={}) == Config.from_json(made.to_json())


class TestErrors:
    @pytest.mark.parametrize(
        ("method", "fields", "field"),
        [
            ({"scheme": "p4s"}, {}, "scheme"),
            ({"algorithm": "td4"}, {}, "algorithm"),
            ({"preset": "papr"}, {}, "preset"),
            ({"scheme": 3}, {}, "scheme"),
            ({"delay": 0}, {}, "delay"),
            ({}, {"gamma": 1}, "gamma"),
            ({}, {"rho": "x"}, "rho"),
            ({}, {"rho": -1.0}, "rho"),
            ({}, {"network": "nonet"}, "network"),
            ({}, {"devices": 3}, "devices"),
            ({}, {"shards": 9}, "shards"),
            ({"algorithm": "tqc"}, {"num_dropped": 25}, "num_dropped"),
            ({"scheme": "pb2"}, {"lower_bounds": [1.0]}, "lower_bounds"),
            ({"scheme": "cem"}, {"num_elites": 99}, "num_elites"),
        ],
    )
    def test_carry_their_field(self, method, fields, field):
        with pytest.raises(UserError) as caught:
            resolve_spec(RunSpec("Pendulum-v1", **method, fields=fields))
        assert caught.value.field == field

    def test_keep_it_between_processes(self):
        again = pickle.loads(pickle.dumps(unknown("scheme", "p4s", ["p3s"], "scheme")))
        assert (str(again), again.field) == ("unknown scheme 'p4s': did you mean p3s?", "scheme")


class TestExplain:
    def test_prints_where_values_come_from_and_trains_nothing(self, capsys, tmp_path):
        code, output, _ = call(
            capsys,
            "train",
            "Hopper-v5",
            "--num-learners",
            "2",
            "--explain",
            "--out",
            tmp_path / "run",
        )
        assert code == 0
        assert not (tmp_path / "run").exists()
        rows = [line.split() for line in output.splitlines()]
        assert ["d_min", "0.05", "scheme", "p3s", "(Appendix", "I)"] in rows
        assert ["initial_steps", "500", "algorithm", "td3", "(Appendix", "I)"] in rows
        assert ["beta_limit", "1000.0", "preset", "recommended"] in rows
        assert ["steps", "1000000", "environment", "Hopper", "(P3S,", "Appendix", "I)"] in rows
        assert ["num_learners", "2", "given"] in rows
        assert ["hidden_sizes", "400", "300"] in rows
        assert ["algorithm", "td3", "(suits", "the", "environment)"] in rows
