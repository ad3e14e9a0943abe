"""The cells of a study."""

from __future__ import annotations

import re

import pytest

from p3s.errors import UserError
from p3s.study.cells import make_cells, select
from p3s.study.definition import Study, slug
from p3s.study.reading import parse
from tests.helpers_studies import GRID, study_of


class TestCells:
    def test_ids_are_unique_readable_and_do_not_depend_on_order(self):
        cells = make_cells(study_of(GRID))
        ids = [cell.id for cell in cells]
        assert len(set(ids)) == len(ids)
        assert "p3s-d_min-0.02_delayed-ant-v5_seed3" in ids
        assert all(re.fullmatch(r"[\w.-]+", name) for name in ids)
        turned = GRID.replace("[3, 5]", "[5, 3]").replace("[0.02, 0.05]", "[0.05, 0.02]")
        assert sorted(ids) == sorted(cell.id for cell in make_cells(study_of(turned)))

    def test_slugs(self):
        assert slug("P3S d_min=0.02") == "p3s-d_min-0.02"
        assert slug("x=-1") != slug("x=1")
        assert slug("β") == "-"

    def test_entries(self):
        entries = [cell.to_json() for cell in make_cells(study_of(GRID))]
        entry = next(one for one in entries if one["paper"] is not None)
        assert entry == {
            "id": "p3s-d_min-0.05_delayed-ant-v5_seed3",
            "run": "runs/p3s-d_min-0.05_delayed-ant-v5_seed3",
            "method": "P3S d_min=0.05",
            "env": "Delayed Ant-v5",
            "seed": 3,
            "paper": 7.0,
        }

    @pytest.mark.parametrize(
        ("only", "count"),
        [
            (None, 12),
            ("env=Pendulum-v1", 6),
            ("env=delayed ant", 6),
            ("env=Pendulum-v1,env=Delayed Ant-v5", 12),
            ("scheme=p3s", 8),
            ("method=P3S*,seed=3", 4),
            ("algorithm=sac, env=*ant*, seed=5", 1),
        ],
    )
    def test_only(self, only, count):
        assert len(select(make_cells(study_of(GRID)), only)) == count

    @pytest.mark.parametrize(
        ("only", "message"),
        [
            ("Hopper-v5", "takes KEY=VALUE"),
            ("environment=Ant-v5", "unknown --only key"),
            ("env=Pendulun-v1", "did you mean pendulum-v1"),
            ("seed=4", "unknown seed in this study '4': known: 3, 5"),
            ("scheme=single,method=P3S*", "matches none of the 12 cells"),
        ],
    )
    def test_only_that_makes_no_sense(self, only, message):
        with pytest.raises(UserError, match=re.escape(message)):
            select(make_cells(study_of(GRID)), only)


PER_ENVIRONMENT = """
steps = 500
seeds = 1
environments = [
  "Pendulum-v1",
  {id = "Ant-v5", steps = 200, fields = {d_min = 0.5, batch_size = 7}},
]
[[methods]]
label = "P3S"
d_min = 0.1
"""


class TestPerEnvironment:
    """An environment's own steps and fields."""

    def configs(self, study: Study) -> dict:
        return {cell.env.label: cell.config for cell in make_cells(study)}

    def test_both_reach_the_runs_of_that_environment_alone(self):
        configs = self.configs(study_of(PER_ENVIRONMENT))
        ant, pendulum = configs["Ant-v5"], configs["Pendulum-v1"]
        assert (ant.options.steps, pendulum.options.steps) == (200, 500)
        assert (ant.scheme.d_min, pendulum.scheme.d_min) == (0.5, 0.1)
        assert (ant.algorithm.batch_size, pendulum.algorithm.batch_size) == (7, 100)

    @pytest.mark.parametrize(
        ("budget", "ant", "pendulum"), [(None, 200, 500), (300, 200, 300), (70, 70, 70)]
    )
    def test_the_smaller_of_both_budgets_wins(self, budget, ant, pendulum):
        study = study_of(PER_ENVIRONMENT).with_budget(budget, None)
        steps = {label: config.options.steps for label, config in self.configs(study).items()}
        assert steps == {"Ant-v5": ant, "Pendulum-v1": pendulum}
        assert [study.steps_on(env) for env in study.environments] == [pendulum, ant]

    def test_more_steps_than_the_studys_are_not_taken(self):
        study = study_of(PER_ENVIRONMENT.replace("steps = 200", "steps = 900"))
        assert self.configs(study)["Ant-v5"].options.steps == 500

    def test_the_resolved_text_keeps_them(self):
        study = study_of(PER_ENVIRONMENT).with_budget(300, None)
        again = parse(study.resolved_text(), "study.toml", "other")
        assert self.configs(again) == self.configs(study)
