"""The studies that come with the package."""

from __future__ import annotations

import pytest

from p3s.config.run import resolve
from p3s.study.catalog import catalog, find_study
from p3s.study.cells import make_cells

OWN = (
    "delayed", "laptop", "parallel", "parallel-second", "population-size", "precision",
    "selection", "selection-crossq", "table2-small",
)  # fmt: skip
"""Studies that are not the paper's."""
PAPERS = [name for name in catalog() if name not in OWN]


class TestCatalog:
    def test_all_of_the_papers_comparisons_are_there(self):
        expected = ["appendix-c", "appendix-f", "figure3", "figure4", "figure5", "table2", "table3"]
        assert expected == PAPERS

    @pytest.mark.parametrize("name", catalog())
    def test_every_study_is_valid(self, name):
        study = find_study(name)
        cells = make_cells(study)
        assert len(cells) == study.num_cells
        for cell in cells:
            cell.config.check()

    @pytest.mark.parametrize("name", PAPERS)
    def test_comparisons_have_the_papers_budget(self, name):
        study = find_study(name)
        cells = make_cells(study)
        assert {cell.config.options.steps for cell in cells} == {1_000_000}
        assert study.seeds == (0, 1, 2, 3, 4)
        presets = {cell.config.preset for cell in cells if cell.method.label != "ERL"}
        assert presets == {"paper"}

    @pytest.mark.parametrize(
        ("name", "methods", "environments"),
        [("figure3", 6, 4), ("figure4", 5, 8), ("figure5", 2, 1), ("appendix-c", 5, 4),
         ("table2", 3, 8), ("table3", 3, 8), ("appendix-f", 3, 1)],
    )  # fmt: skip
    def test_sizes(self, name, methods, environments):
        study = find_study(name)
        assert (len(study.methods), len(study.environments)) == (methods, environments)

    def test_the_papers_numbers(self):
        table2, table3 = find_study("table2").paper, find_study("table3").paper
        assert len(table2) == len(table3) == 24
        assert table2["CEM-TD3", "Delayed HalfCheetah-v5"] == 6389.40
        assert table3["Center-TD3", "Ant-v5"] == 4616.82
        for label, env in table2.keys() & table3.keys():
            assert table2[label, env] == table3[label, env]
        for name in ("figure3", "figure4", "appendix-c"):
            for key, score in find_study(name).paper.items():
                assert table2[key] == score

    def test_erl_is_the_published_one(self):
        cells = {cell.method.label: cell for cell in make_cells(find_study("appendix-f"))}
        config = cells["ERL"].config
        published = resolve("Swimmer-v5", "erl", "ddpg", "authors")
        assert (config.scheme, config.scheme.num_learners) == (published.scheme, 10)
        assert config.algorithm.for_policy.learning_rate == 5e-5

    def test_settings_by_environment(self):
        cells = {(cell.method.label, cell.env.label): cell for cell in make_cells(
            find_study("figure4"))}  # fmt: skip
        assert cells["P3S-TD3", "Delayed Ant-v5"].config.scheme.d_min == 0.05
        assert cells["P3S-TD3", "Ant-v5"].config.scheme.d_min == 0.02
        assert cells["Re-TD3", "Delayed Hopper-v5"].config.scheme.review_period == 20_000
        assert cells["TD3", "Walker2d-v5"].config.env.kwargs == {"xml_file": "walker2d.xml"}
