"""Studies from files, and what is wrong with a file."""

from __future__ import annotations

import re

import pytest

from p3s.envs import parse_name
from p3s.errors import UserError
from p3s.runs.settings import environment_label
from p3s.study.catalog import find_study
from p3s.study.cells import make_cells
from p3s.study.reading import parse
from tests.helpers import ROOT
from tests.helpers_studies import GRID, study_of


class TestReading:
    def test_grids_multiply(self):
        study = study_of(GRID)
        labels = [method.label for method in study.methods]
        assert labels == ["P3S d_min=0.02", "P3S d_min=0.05", "sac"]
        assert [env.label for env in study.environments] == ["Pendulum-v1", "Delayed Ant-v5"]
        assert (study.name, study.steps, study.seeds) == ("mine", 500, (3, 5))
        assert study.num_cells == len(make_cells(study)) == 12

    def test_common_grid_with_names_and_delays(self):
        study = study_of(
            'environments = ["Pendulum-v1"]\nseeds = 1\n[grid]\ndelay = [2, "end"]\n'
            'scheme = ["p3s", "single"]\npreset = ["paper", "authors"]\n'
            "hidden_sizes = [[8], [8, 8]]"
        )
        cells = make_cells(study)
        assert len(cells) == 16
        assert {cell.config.env.delay for cell in cells} == {2, "end"}
        last = cells[-1]
        assert last.method.label == "td3 preset=authors hidden_sizes=[8, 8]"
        assert last.env.label == "Pendulum-v1, delay end"
        assert last.config.preset == "authors"
        assert last.config.algorithm.hidden_sizes == (8, 8)

    def test_defaults_are_the_papers_budget_and_the_recommended_preset(self):
        study = study_of('environments = ["Hopper-v1"]')
        assert (study.steps, study.seeds) == (1_000_000, (0, 1, 2, 3, 4))
        (method,) = study.methods
        assert (method.label, method.preset) == ("p3s-td3", "recommended")

    @pytest.mark.parametrize(
        ("name", "delay", "label"),
        [
            ("Hopper-v1", None, "Hopper-v5"),
            ("Delayed Ant-v1", None, "Delayed Ant-v5"),
            ("Pendulum-v1", 20, "Pendulum-v1, delay 20"),
            ("Ant-v5", "end", "Ant-v5, delay end"),
        ],
    )
    def test_environment_labels(self, name, delay, label):
        assert environment_label(parse_name(name, delay)) == label

    def test_resolved_text_has_the_budget_in_force(self):
        study = study_of("# why\n" + GRID).with_budget(steps=70, seeds=1)
        again = parse(study.resolved_text(), "study.toml", "other")
        assert (again.name, again.steps, again.seeds) == ("mine", 70, (3,))
        assert [cell.id for cell in make_cells(again)] == [cell.id for cell in make_cells(study)]
        assert "# why" in study.resolved_text()

    def test_budget(self):
        counted = study_of('environments = ["Pendulum-v1"]\nseeds = 2')
        assert counted.with_budget(None, 4).seeds == (0, 1, 2, 3)
        with pytest.raises(UserError, match="seeds must be at most 2"):
            study_of(GRID).with_budget(None, 3)
        with pytest.raises(UserError, match="steps must be at least 1, not 0"):
            counted.with_budget(0, None)

    def test_another_preset_for_methods_without_their_own(self):
        own = GRID.replace('algorithm = "sac"', 'algorithm = "sac"\npreset = "paper"')
        for text in (own, 'preset = "paper"\n' + own):
            study = study_of(text).with_preset("authors").with_budget(70, 1)
            assert [method.preset for method in study.methods] == ["authors", "authors", "paper"]
            again = parse(study.resolved_text(), "study.toml", "other")
            assert make_cells(again)[0].config == make_cells(study)[0].config
            assert [method.preset for method in again.methods] == ["authors", "authors", "paper"]
            assert again.steps == 70
        assert study_of(GRID).with_preset(None) == study_of(GRID)
        assert "preset" not in study_of(GRID).resolved_text()

    def test_a_preset_in_fields_or_grid_belongs_to_the_methods(self):
        for place in ('[fields]\npreset = "paper"', '[grid]\npreset = ["paper", "authors"]'):
            with pytest.raises(UserError, match=r"every method in mine\.toml names its own preset"):
                study_of(HEAD + place).with_preset("authors")
        with pytest.raises(UserError, match="unknown preset 'author': did you mean authors"):
            study_of(GRID).with_preset("author")


HEAD = 'environments = ["Pendulum-v1"]\n'


class TestBadFiles:
    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("steps = = 3", 1, "invalid TOML: Invalid value"),
            ("a = 1\na = 2", 2, "invalid TOML"),
            ("step = 3", 1, "unknown key 'step': did you mean steps?"),
            ('\nsteps = "3"', 2, 'steps: expected a whole number, not "3"'),
            ("steps = 0", 1, "steps must be at least 1, not 0"),
            ('name = "a/b"', 1, 'name: expected letters, digits'),
            ('name = ".."', 1, 'not ".."'),
            ("steps = 3", 1, "environments is empty"),
            ("steps = 3\nenvironments = []", 2, "environments is empty: expected a list"),
            ("environments = [3]", 1, "expected names, or tables"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', dlay = 2}]", 3,
             "unknown key 'dlay': did you mean delay?"),
            ("environments = [\n{id = 'Ant-v5', delay = 0}]", 2, "delay: expected a whole number"),
            ("environments = [\n'Ant-v5',\n'Hoper-v5']", 3, "did you mean Hopper-v5"),
            ("environments = ['Ant-v5', 'Ant-v5']", 1, "two environments are called 'Ant-v5'"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', steps = 0}]", 3,
             "steps must be at least 1, not 0"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', steps = 'x'}]", 3,
             "steps: expected a whole number"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', fields = {d_mn = 1}}]", 3,
             "unknown field 'd_mn': did you mean d_min?"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', fields = {d_min = 'x'}}]", 3,
             "d_min: expected a number"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', fields = {batch_size = 0}}]", 3,
             "batch_size must be at least 1"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', fields = {seed = 1}}]", 3,
             "seed is set at the top of the file: seeds = [...]"),
            (HEAD + "[fields]\npreset = 'papr'", 3, "unknown preset 'papr'"),
            (HEAD + "seeds = 0", 2, "seeds must be at least 1, not 0"),
            (HEAD + "seeds = []", 2, "seeds is empty: expected a count or a list"),
            (HEAD + "seeds = [1, -1]", 2, "expected whole numbers of at least 0, not -1"),
            (HEAD + "seeds = [1, 1]", 2, "seeds: 1 is listed twice"),
            (HEAD + "seeds = true", 2, "seeds: expected a whole number or a list, not true"),
            (HEAD + "methods = []", 2, "methods is empty"),
            (HEAD + "[grid]\nd_min = []", 3, "the list is empty, so nothing would run"),
            (HEAD + "[grid]\nd_min = 0.1", 3, "d_min: expected a list of values, not 0.1"),
            (HEAD + "[grid]\nseed = [1]", 3, "seed is set at the top of the file: seeds = [...]"),
            (HEAD + "[fields]\nscheme = 'p3s'", 3, "belongs in [[methods]] or [grid]"),
            (HEAD + "[fields]\ndelay = 3", 3, "delay belongs in an environment or in [grid]"),
            (HEAD + "[[methods]]\n[[methods]]", 3, "two methods are called 'p3s-td3'"),
            (HEAD + "[[methods]]\nlabel = 'A B'\n[[methods]]\nlabel = 'A-B'", 4,
             "methods 'A B' and 'A-B' have the same folder name"),
            (HEAD + "[[methods]]\nd_min = 1\n[grid]\nd_min = [1]", 5,
             "d_min is set twice for this method"),
            (HEAD + "[[methods]]\nscheme = 3", 3, "scheme: expected text, not 3"),
            (HEAD + "[paper.TD3]\nAnt-v5 = 3", 2, "unknown method 'TD3'"),
            (HEAD + "[paper.p3s-td3]\nAnt-v5 = 3", 3, "unknown environment 'Ant-v5'"),
            (HEAD + "[paper.p3s-td3]\nPendulum-v1 = '3'", 3, "expected a number"),
            (HEAD + "[[methods]]\nscheme = 'p4s'", 3, "unknown scheme 'p4s': did you mean p3s?"),
            (HEAD + "[grid]\nalgorithm = ['td3', 'td4']", 3, "unknown algorithm 'td4'"),
            (HEAD + "preset = 'papr'", 2, "unknown preset 'papr': did you mean paper?"),
            (HEAD + "[[methods]]\n\nd_mn = 1", 4, "unknown field 'd_mn': did you mean d_min?"),
            (HEAD + "[fields]\nd_min = 'x'", 3, 'd_min: expected a number, not "x"'),
            (HEAD + "[fields]\nhidden_sizes = 8", 3, "hidden_sizes: expected a list, each a whole"),
            (HEAD + "[grid]\ndistances_exclude = ['nobody']", 3,
             'expected "period_best" or "new_best"'),
            (HEAD + "[[methods]]\nbatch_size = 0", 3, "batch_size must be at least 1"),
            (HEAD + "[[methods]]\nscheme = 'single'\nnum_learners = 4", 4, "has one learner"),
        ],
    )  # fmt: skip
    def test_file_line_and_what_was_expected(self, text, line, message):
        with pytest.raises(UserError) as raised:
            make_cells(study_of(text))
        assert str(raised.value).startswith(f"mine.toml:{line}: ")
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_no_such_study(self, tmp_path):
        for source, message in (
            ("figure33", "did you mean figure3"),
            (str(tmp_path), "is not a study: it has no study.toml"),
            (str(tmp_path / "none.toml"), "cannot be read"),
        ):
            with pytest.raises(UserError, match=message):
                find_study(source)


def test_the_documentations_example_is_a_valid_study():
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    cells = make_cells(parse(examples[0], "docs/studies.md", "example"))
    assert f"{len(cells)} runs" in text
