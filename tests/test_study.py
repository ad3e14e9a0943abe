"""Studies as data: their files, what is wrong with a file, their cells, and what is printed."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from p3s.envs import parse_name
from p3s.errors import UserError
from p3s.field_types import Mismatch, convert
from p3s.runs.records import last_row
from p3s.study import estimate
from p3s.study.catalog import catalog, find_study
from p3s.study.cells import Cell, check_environments, make_cells, select
from p3s.study.definition import Study, slug
from p3s.study.display import brief, duration, status_table, summary
from p3s.study.folder import Progress, StudyFolder, read_failure, write_failure
from p3s.study.reading import environment_label, parse
from p3s.study.scheduler import core_shares
from p3s.study.toml_lines import Positions

from .test_cli import call

GRID = """
steps = 500
seeds = [3, 5]
environments = ["Pendulum-v1", {id = "Ant-v5", delay = 20}]

[[methods]]
label = "P3S"
num_learners = 2
[methods.grid]
d_min = [0.02, 0.05]

[[methods]]
scheme = "single"
algorithm = "sac"

[paper."P3S d_min=0.05"]
"Delayed Ant-v5" = 7
"""


def study_of(text: str) -> Study:
    return parse(text, "mine.toml", "mine")


class TestPositions:
    TEXT = '''# name = 1
name = "x"
environments = [
  "Hopper-v5",  # ] not the end
  {id = "Ant-v5", delay = 20},
]
title = """
[methods]
steps = 1
"""
"quoted key" = 1
a.b = 2

[[methods]]
label = "one"
[methods.grid]
d_min = [1]
[[ methods ]]  # two

scheme = "p3s"
[paper."P3S [x] = y"]
"Hopper-v5" = 3
[fields]'''

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            (("name",), 2),
            (("environments",), 3),
            (("environments", 1, "delay"), 5),
            (("title",), 7),
            (("quoted key",), 11),
            (("a", "b"), 12),
            (("methods", 0), 14),
            (("methods", 0, "label"), 15),
            (("methods", 0, "grid", "d_min"), 17),
            (("methods", 1), 18),
            (("methods", 1, "scheme"), 20),
            (("methods", 1, "label"), 18),
            (("paper", "P3S [x] = y"), 21),
            (("paper", "P3S [x] = y", "Hopper-v5"), 22),
            (("fields",), 23),
            (("nowhere",), 1),
        ],
    )
    def test_line_of_a_key(self, path, line):
        assert Positions(self.TEXT).line(path) == line

    @pytest.mark.parametrize("name", catalog())
    def test_every_key_of_a_real_file_is_found(self, name):
        text = catalog()[name].read_text()
        lines, positions, found = text.split("\n"), Positions(text), set()

        def look(table, path):
            for key, value in table.items():
                if isinstance(value, dict):
                    look(value, (*path, key))
                elif isinstance(value, list) and isinstance(value[0], dict):
                    for index, entry in enumerate(value):
                        look(entry, (*path, key, index))
                else:
                    first, _ = positions.span((*path, key))
                    assert re.match(rf'"?{re.escape(key)}"? = ', lines[first - 1])
                    found.add(first)

        look(tomllib.loads(text), ())
        assert len(found) == len(re.findall(r'^["\w-]+.* = ', text, re.MULTILINE))

    def test_line_of_a_word_in_a_long_value(self):
        assert Positions(self.TEXT).line(("environments",), "Hopper-v5") == 4

    def test_span_of_a_long_value(self):
        assert Positions(self.TEXT).span(("environments",)) == (3, 6)
        assert Positions(self.TEXT).span(("title",)) == (7, 10)


@pytest.mark.parametrize(
    ("value", "expected", "result"),
    [
        (3, int, 3),
        (3, float, 3.0),
        ([4, 3], tuple[int, ...], (4, 3)),
        (2, int | str, 2),
        (True, bool, True),
        (True, int, None),
        (1.5, int, None),
        ("a", float, None),
        ([1, "x"], tuple[int, ...], None),
        ([1], int, None),
    ],
)
def test_values_of_a_type(value, expected, result):
    if result is None:
        with pytest.raises(Mismatch, match="expected"):
            convert(value, expected)
    else:
        converted = convert(value, expected)
        assert (converted, type(converted)) == (result, type(result))


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

    def test_defaults_are_the_papers(self):
        study = study_of('environments = ["Hopper-v1"]')
        assert (study.steps, study.seeds) == (1_000_000, (0, 1, 2, 3, 4))
        (method,) = study.methods
        assert (method.label, method.preset) == ("p3s-td3", "paper")

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
        with pytest.raises(UserError, match="lists 2 seeds, fewer than 3"):
            study_of(GRID).with_budget(None, 3)
        with pytest.raises(UserError, match="steps must be at least 1, not 0"):
            counted.with_budget(0, None)


HEAD = 'environments = ["Pendulum-v1"]\n'


class TestBadFiles:
    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("steps = = 3", 1, "not TOML: Invalid value"),
            ("a = 1\na = 2", 2, "not TOML"),
            ("step = 3", 1, "unknown key 'step': did you mean steps?"),
            ('\nsteps = "3"', 2, 'steps: expected a whole number, not "3"'),
            ("steps = 0", 1, "steps must be at least 1, not 0"),
            ('name = "a/b"', 1, 'name: expected a letter or digit, then also'),
            ('name = ".."', 1, 'not ".."'),
            ("steps = 3", 1, "environments is empty"),
            ("steps = 3\nenvironments = []", 2, "environments is empty: expected a list"),
            ("environments = [3]", 1, "expected names, or tables"),
            ("environments = [\n'Pendulum-v1',\n{id = 'Ant-v5', dlay = 2}]", 3,
             "unknown key 'dlay': did you mean delay?"),
            ("environments = [\n{id = 'Ant-v5', delay = 0}]", 2, "delay: expected a whole number"),
            ("environments = [\n'Ant-v5',\n'Hoper-v5']", 3, "did you mean Hopper-v5"),
            ("environments = ['Ant-v5', 'Ant-v5']", 1, "two environments are called 'Ant-v5'"),
            (HEAD + "seeds = 0", 2, "seeds must be at least 1, not 0"),
            (HEAD + "seeds = []", 2, "seeds is empty: expected a count or a list"),
            (HEAD + "seeds = [1, -1]", 2, "expected whole numbers from 0, not -1"),
            (HEAD + "seeds = [1, 1]", 2, "one is there twice"),
            (HEAD + "seeds = true", 2, "seeds: expected a whole number or a list, not true"),
            (HEAD + "methods = []", 2, "methods is empty"),
            (HEAD + "[grid]\nd_min = []", 3, "the list is empty, so nothing would run"),
            (HEAD + "[grid]\nd_min = 0.1", 3, "d_min: expected a list of values, not 0.1"),
            (HEAD + "[grid]\nseed = [1]", 3, "seed belongs to the top: seeds = [...]"),
            (HEAD + "[fields]\nscheme = 'p3s'", 3, "belongs into [[methods]] or [grid]"),
            (HEAD + "[fields]\ndelay = 3", 3, "delay belongs to an environment or into [grid]"),
            (HEAD + "[[methods]]\n[[methods]]", 3, "two methods are called 'p3s-td3'"),
            (HEAD + "[[methods]]\nlabel = 'A B'\n[[methods]]\nlabel = 'A-B'", 4,
             "methods 'A B' and 'A-B' have the same short name"),
            (HEAD + "[[methods]]\nd_min = 1\n[grid]\nd_min = [1]", 5, "d_min is in the method too"),
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
            (HEAD + "[grid]\nleft_out = ['nobody']", 3, 'expected "period_best" or "new_best"'),
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


class TestCatalog:
    def test_all_of_the_papers_comparisons_are_there(self):
        expected = ["appendix-c", "appendix-f", "figure3", "figure4", "figure5", "table2", "table3"]
        assert list(catalog()) == expected

    @pytest.mark.parametrize("name", catalog())
    def test_every_study_is_valid_and_has_the_papers_budget(self, name):
        study = find_study(name)
        cells = make_cells(study)
        assert len(cells) == study.num_cells
        assert {cell.config.options.steps for cell in cells} == {1_000_000}
        assert study.seeds == (0, 1, 2, 3, 4)
        assert {cell.config.preset for cell in cells} == {"paper"}

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

    def test_settings_by_environment(self):
        cells = {(cell.method.label, cell.env.label): cell for cell in make_cells(
            find_study("figure4"))}  # fmt: skip
        assert cells["P3S-TD3", "Delayed Ant-v5"].config.scheme.d_min == 0.05
        assert cells["P3S-TD3", "Ant-v5"].config.scheme.d_min == 0.02
        assert cells["Re-TD3", "Delayed Hopper-v5"].config.scheme.review_period == 20_000
        assert cells["TD3", "Walker2d-v5"].config.env.kwargs == {"xml_file": "walker2d.xml"}


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
            ("environment=Ant-v5", "unknown key of --only"),
            ("env=Pendulun-v1", "did you mean pendulum-v1"),
            ("seed=4", "unknown seed in this study '4': known: 3, 5"),
            ("scheme=single,method=P3S*", "leaves nothing of the 12 cells"),
        ],
    )
    def test_only_that_makes_no_sense(self, only, message):
        with pytest.raises(UserError, match=re.escape(message)):
            select(make_cells(study_of(GRID)), only)


class TestFolder:
    @pytest.fixture
    def cell(self) -> Cell:
        return make_cells(study_of(GRID))[0]

    @pytest.fixture
    def folder(self, tmp_path, cell) -> StudyFolder:
        folder = StudyFolder(tmp_path / "study")
        folder.write(study_of(GRID), make_cells(study_of(GRID)))
        return folder

    def begin(self, folder, cell, step):
        run = folder.run(cell)
        run.mkdir()
        (run / "config.json").write_text(json.dumps(cell.config.to_json()))
        (run / "metrics.jsonl").write_text(f'{{"step": {step}, "steps_per_second": 50}}\n')
        return run

    def test_states(self, folder, cell):
        assert folder.progress(cell).state == "waiting"
        run = self.begin(folder, cell, 300)
        assert folder.progress(cell) == Progress("stopped", 300, None, 50)
        write_failure(folder.failure(cell), "no\nmore", "trace", 300)
        assert folder.progress(cell) == Progress("failed", 300, None, 50, "no")
        lock = folder.lock(cell)
        assert folder.progress(cell).state == "running"
        os.close(lock)
        (run / "checkpoints" / "step-000000000500").mkdir(parents=True)
        assert folder.progress(cell).state == "complete"

    def test_a_run_cut_off_before_its_last_checkpoint_is_not_complete(self, folder, cell):
        run = self.begin(folder, cell, 500)
        (run / "checkpoints" / "step-000000000400").mkdir(parents=True)
        assert not folder.is_complete(cell)

    def test_a_complete_run_without_checkpoints_stays_complete(self, folder, cell):
        run = self.begin(folder, cell, 500)
        assert not folder.is_complete(cell)
        (run / "policy.safetensors").touch()
        assert folder.is_complete(cell)

    def test_a_lock_excludes_others_and_goes_with_its_holder(self, folder, cell):
        first = folder.lock(cell)
        assert folder.lock(cell) is None
        os.close(first)
        second = folder.lock(cell)
        assert second is not None
        os.close(second)

    def test_a_run_begun_with_other_settings_is_refused(self, folder, cell):
        self.begin(folder, cell, 100)
        folder.check_runs(make_cells(study_of(GRID.replace("500", "900"))))
        other = study_of(GRID.replace("num_learners = 2", "num_learners = 2\nrho = 3"))
        with pytest.raises(UserError, match=r"begun with rho = 2\.0, the study says 3\.0"):
            folder.check_runs(make_cells(other))

    def test_a_run_begun_with_other_arguments_of_its_environment_is_refused(self, folder):
        given = 'environments = [{id = "Ant-v5", kwargs = {frame_skip = 2}}'
        with_kwargs = GRID.replace('environments = ["Pendulum-v1"', given)
        self.begin(folder, make_cells(study_of(with_kwargs))[0], 100)
        without = study_of(with_kwargs.replace(", kwargs = {frame_skip = 2}", ""))
        with pytest.raises(UserError, match=r"begun with frame_skip = 2, the study says None"):
            folder.check_runs(make_cells(without))

    @pytest.mark.parametrize(
        ("environments", "message"),
        [
            ('["CartPole-v1"]', r"mine\.toml:6: .*CartPole-v1 has discrete actions"),
            ('[{id = "Ant-v5", kwargs = {gg = 3}}]', r"mine\.toml:4: .*argument 'gg'"),
        ],
    )
    def test_environments_are_tried_before_anything_runs(self, environments, message):
        grid = GRID[: GRID.index("[paper")]
        study = study_of(re.sub("environments = .*", f"environments = {environments}", grid))
        with pytest.raises(UserError, match=message):
            check_environments(study, make_cells(study))

    def test_last_row(self, tmp_path):
        path = tmp_path / "rows.jsonl"
        assert last_row(path) is None
        path.write_text('{"step": 1')
        assert last_row(path) is None
        path.write_text('{"step": 1}\n{"st')
        assert last_row(path) == {"step": 1}
        long = json.dumps({"step": 2, "episodes": list(range(20_000))})
        path.write_text('{"step": 1}\n' + long + "\n")
        assert last_row(path) == json.loads(long)

    def test_a_damaged_failure_is_still_a_failure(self, tmp_path):
        (tmp_path / "x.json").write_text("{")
        assert "cannot be read" in read_failure(tmp_path / "x.json")


def test_every_process_has_equally_many_cores():
    assert core_shares([0, 1, 2, 3], 2) == [[0, 1], [2, 3]]
    assert core_shares([0, 1, 2], 2) == [[0], [1]]
    assert core_shares([4, 5], 3) == [[4], [5], [4]]
    assert core_shares([0, 1, 2], 1) == [[0, 1, 2]]


class TestDisplay:
    def test_durations(self):
        shown = [duration(value) for value in (0.4, 59.6, 185, 7800, 200_000)]
        assert shown == ["0 s", "1 min 00 s", "3 min 05 s", "2 h 10 min", "2 d 8 h"]
        short = [brief(value) for value in (42, 720, 20_160, 267_840)]
        assert short == ["42 s", "12 min", "5.6 h", "3.1 d"]

    def test_summary_and_a_table_that_fits(self):
        cells = make_cells(study_of(GRID))
        progress = {cell.id: Progress("waiting") for cell in cells}
        progress[cells[3].id] = Progress("running", 100, 1.0, 10.0)
        progress[cells[4].id] = Progress("complete", 500, 1.0, 10.0)
        text = summary(cells, progress).plain
        assert text == "12 cells: 1 running, 10 waiting, 1 complete, about 9 min 00 s left"
        table = status_table(cells, progress, 5)
        assert table.row_count == 5
        assert next(iter(table.columns[0].cells)) == cells[3].method.label
        assert list(table.columns[0].cells)[-1] == "... and 8 more"
        assert status_table(cells, progress).row_count == 12


class TestCommand:
    def test_list(self, capsys):
        code, output, _ = call(capsys, "study", "list")
        assert code == 0
        for name in catalog():
            assert name in output
        assert re.search(r"figure4 .*parallel learning schemes +200 +1,000,000", output)

    def test_show(self, capsys):
        code, output, _ = call(
            capsys, "study", "show", "figure4", "--no-calibrate", "--steps", 3000, "--seeds", 2,
            "--jobs", 2, "--only", "env=Hopper,env=Delayed Hopper",
        )  # fmt: skip
        assert code == 0
        assert "20 cells of 3,000 steps: 60,000 steps in total" in output
        assert re.search(r"Delayed Hopper-v5( +2){5}\n", output)
        # A row of Hopper: two observations of 11, 3 actions, reward and discount, 4 bytes each.
        assert estimate.replay_bytes(
            make_cells(find_study("figure4").with_budget(3000, 1))[0].config,
            estimate.environment_cost(parse_name("Hopper-v1"), 0.0).spec,
        ) == 3000 * 27 * 4  # fmt: skip
        assert "disk: up to 0.0 GB" in output
        assert "time:" not in output

    def test_show_calibrates(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(estimate, "TRAINING_SECONDS", 0.2)
        monkeypatch.setattr(estimate, "ENVIRONMENT_SECONDS", 0.05)
        path = tmp_path / "tiny.toml"
        path.write_text(
            'environments = ["InvertedPendulum-v5"]\nsteps = 3_600\n[fields]\n'
            "hidden_sizes = [16, 16]\nbatch_size = 8\nevaluation_period = 0"
        )
        allowed = os.sched_getaffinity(0)
        code, output, _ = call(capsys, "study", "show", path, "--seeds", 2, "--jobs", 1)
        assert code == 0
        assert re.search(r"InvertedPendulum-v5 +\d+ (s|min)", output)
        assert "with 1 at a time on this machine" in output
        assert os.sched_getaffinity(0) == allowed

    def test_evaluations_count_at_full_length(self):
        config = make_cells(find_study("figure5"))[0].config
        # 250 evaluations of 4 learners and the champion once more, 10 episodes each.
        assert estimate.evaluation_steps(config, 4, 1000) == 250 * 5 * 10 * 1000

    def test_seconds_per_step(self):
        compiling, slow = estimate.Lap(9.0, 4, 1), estimate.Lap(3.0, 4, 1)
        # Updates with every step, the slowest of which is left out.
        even, odd = estimate.Lap(0.2, 4, 1), estimate.Lap(0.4, 4, 1)
        laps = [estimate.Lap(0.1, 4, 0)] * 5 + [compiling] * 2 + [even, odd] * 4 + [slow]
        assert estimate.seconds_per_step(laps, None) == pytest.approx(0.3 / 4)
        # An update after a rollout of 10 steps.
        rest, learn = estimate.Lap(0.1, 1, 0), estimate.Lap(1.1, 1, 1)
        rollout = [*[rest] * 9, learn]
        laps = [*[rest] * 9, estimate.Lap(9.0, 1, 1), *rollout * 4]
        assert estimate.seconds_per_step(laps, None) == pytest.approx(0.2)
        # Rounds: 3 steps at a time, and then one update for each of them.
        rounds = [estimate.Lap(0.3, 3, 0)] * 8 + [estimate.Lap(9.0, 0, 1)] * 2
        rounds += [estimate.Lap(0.5, 0, 1)] * 6
        assert estimate.seconds_per_step(rounds, 1) == pytest.approx(0.1 + 0.5)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("run figure44", "unknown study 'figure44': did you mean figure4"),
            ("run mine.toml", "mine.toml cannot be read"),
            ("run figure4 --jobs 0", "jobs must be at least 1, not 0"),
            ("run figure4 --only env=Hoper", "did you mean hopper?"),
            ("run figure4 --out .", "exists and is not a study"),
            ("show figure4 --seeds 0", "seeds must be at least 1"),
            ("status figure4", "there is no study in studies/figure4 yet: p3s study run figure4"),
            ("status .", "is not a study"),
            ("export figure4 -o results.parquet", "there is no study in studies/figure4 yet"),
        ],
    )
    def test_bad_input_is_one_line(self, capsys, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "something").touch()
        code, _, errors = call(capsys, "study", *arguments.split())
        assert code == 2
        assert message in errors
        assert errors.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_the_documentations_example_is_a_valid_study():
    text = (Path(__file__).parents[1] / "docs" / "studies.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    cells = make_cells(parse(examples[0], "docs/studies.md", "example"))
    assert f"{len(cells)} runs" in text
