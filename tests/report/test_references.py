"""Policies that learn nothing, beside those that do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.report.context import published_line, reference_cautions
from p3s.report.page import build_report, render_report
from p3s.report.references import Reference, read_references, references_text
from p3s.report.results import Results, read_results
from p3s.report.summary import Summary, summarize
from tests.helpers import page_data
from tests.synthetic_runs import METHODS, write_study

ANT = Reference(
    {"id": "Ant-v5", "delay": None, "kwargs": {}}, {"idle": [990, 998], "random": [-60]}
)
BREAKOUT = Reference({"id": "Breakout"}, {"random": [10.0, 20.0]})


def write_references(folder: Path, **references: Reference) -> Path:
    named = {name.replace("_", " ") + "-v1": each for name, each in references.items()}
    (folder / "references.json").write_text(references_text(named))
    return folder


def summary_of(folder: Path) -> Summary:
    return summarize(read_results([folder]), np.random.default_rng(0))


@pytest.fixture(scope="module")
def delayed(tmp_path_factory) -> Path:
    """A study with Delayed Ant, whose made-up scores end near the published 724.5."""
    folder = tmp_path_factory.mktemp("studies") / "delayed"
    write_study(folder, METHODS, ("Hopper-v1", "Delayed Ant-v1"), seeds=3, evaluations=12)
    return write_references(folder, Hopper=BREAKOUT, Delayed_Ant=ANT)


class TestFile:
    def test_it_is_read_as_it_was_written(self, tmp_path):
        assert read_references(tmp_path) == {}
        assert read_references(write_references(tmp_path, Ant=ANT)) == {"Ant-v1": ANT}
        assert (ANT.means, ANT.best) == ({"idle": 994.0, "random": -60.0}, "idle")
        assert BREAKOUT.best == "random"

    @pytest.mark.parametrize(
        "text",
        ["{", "[]", '{"a": {"idle": 3}}', '{"a": {"environment": {}, "returns": {"idle": []}}}'],
    )
    def test_a_damaged_one_is_said_and_the_runs_are_reported(self, own_study, text):
        (own_study / "references.json").write_text(text)
        results = read_results([own_study])
        assert "references.json is damaged" in results.notes[0]
        assert results.references == {}

    def test_several_folders_share_what_they_have(self, own_study, delayed):
        results = read_results([own_study, delayed])
        assert list(results.references) == ["Hopper-v1", "Delayed Ant-v1"]
        assert "Gray lines" in render_report(build_report(results))


class TestScales:
    def test_the_better_policy_is_0(self, own_study):
        before = summary_of(own_study)
        summary = summary_of(write_references(own_study, Ant=ANT, Hopper=BREAKOUT))
        ant, hopper = summary.scales["Ant-v1"], summary.scales["Hopper-v1"]
        assert (ant.low, ant.high) == (994.0, 5339.66)
        assert ant.source == "idle policy; highest published score"
        assert (hopper.low, hopper.source) == (15.0, "random policy; highest published score")
        cells = [summary.cells["TD3", env] for env in ("Hopper-v1", "Ant-v1")]
        normalized = [
            (cells[0].score.values - 15) / (3705.92 - 15),
            (cells[1].score.values - 994) / (5339.66 - 994),
        ]
        assert summary.aggregates[1].mean.value == pytest.approx(np.mean(normalized))
        # Published for TD3: 2555.85 and 3760.5.
        parts = [
            (cells[0].score.values - 15) / (2555.85 - 15),
            (cells[1].score.values - 994) / (3760.5 - 994),
        ]
        gap = np.mean([np.maximum(0, 1 - part) for part in parts])
        assert summary.aggregates[1].gap.value == pytest.approx(gap)
        assert [item.chance for item in summary.improvements] == [
            item.chance for item in before.improvements
        ]

    def test_without_published_scores(self, own_study):
        cells = json.loads((own_study / "cells.json").read_text())
        for cell in cells["cells"]:
            cell["paper"] = None
        (own_study / "cells.json").write_text(json.dumps(cells))
        summary = summary_of(write_references(own_study, Ant=ANT))
        scale = summary.scales["Ant-v1"]
        assert scale.source == "idle policy; best score of these runs"
        assert scale.high == summary.cells["P3S-TD3", "Ant-v1"].score.mean
        assert summary.scales["Hopper-v1"].source == "lowest and best score of these runs"

    def test_an_environment_where_nothing_beats_standing_still_is_left_out(self, delayed):
        summary = summary_of(delayed)
        scale = summary.scales["Delayed Ant-v1"]
        assert scale.low > scale.high
        assert summary.notes == [
            "left out of the numbers over all environments, because no score is far enough above "
            "an idle or random policy: Delayed Ant-v1"
        ]
        values = summary.cells["TD3", "Hopper-v1"].score.values
        assert summary.aggregates[1].mean.value == pytest.approx(np.mean((values - 15) / 3690.92))

    @pytest.mark.parametrize(("idle", "kept"), [(3000.0, True), (5600.0, False)])
    def test_a_scale_may_not_be_too_short(self, own_study, idle, kept):
        """With idle at 5600 the best method is above it, but TD3 would be at about -10."""
        reference = Reference({}, {"idle": [idle], "random": [0.0]})
        summary = summary_of(write_references(own_study, Ant=reference))
        best = summary.cells["P3S-TD3", "Ant-v1"].score.mean
        assert best > idle
        assert summary.scales["Ant-v1"].high == (5339.66 if kept else best)
        assert bool(summary.notes) != kept


class TestShown:
    def test_nobody_is_best_where_standing_still_earns_more(self, delayed):
        report = build_report(read_results([delayed]))
        summary = summary_of(delayed)
        assert (summary.unbeaten("Delayed Ant-v1"), summary.best("Delayed Ant-v1")) == (
            "idle",
            None,
        )
        assert summary.best("Hopper-v1") == "P3S-TD3"
        page = render_report(report)
        assert "none above the idle policy" in page
        assert page.count("best: ") == 1

    def test_page(self, delayed):
        page = render_report(build_report(read_results([delayed])))
        assert (
            "<li>Delayed Ant-v1: an idle policy earns 994.0, more than every method and every "
            "published score (the highest is 724.5)</li>"
        ) in page
        assert "<td>994.0</td>\n" in page
        assert "990.0 to 998.0 in 2 episodes" in page
        assert "idle 994.0, random -60.0" in page
        assert "0 is the better of an idle and a random policy" in page
        panels = page_data(page)["panels"]
        assert panels[1]["references"] == [
            {"policy": "idle", "name": "idle policy: 994.0", "value": 994.0},
            {"policy": "random", "name": "random policy: -60.0", "value": -60.0},
        ]
        assert [mark["policy"] for mark in panels[0]["references"]] == ["random"]

    def test_a_study_without_references(self, study):
        page = render_report(build_report(read_results([study])))
        assert "idle" not in page[: page.index('id="data"')].split("</style>")[1]
        assert all(panel["references"] == [] for panel in page_data(page)["panels"])

    def test_cautions_name_who_is_beaten(self, own_study):
        """P3S ends near 5700 on Ant, TD3 near 3600; published are 5339.66 and 3760.5."""
        reference = Reference({}, {"random": [4500.0]})
        summary = summary_of(write_references(own_study, Ant=reference, Hopper=BREAKOUT))
        assert reference_cautions(summary) == [
            "Ant-v1: a random policy earns 4,500, more than TD3 and 1 of 2 published scores"
        ]

    def test_figures_tables_and_export(self, delayed, tmp_path):
        figures = tmp_path / "figures"
        run_report(ReportOptions(runs=(delayed,), out=tmp_path / "report.html", figures=figures))
        assert "idle policy" in (figures / "curves.svg").read_text()
        header, _, hopper, ant = (figures / "final.md").read_text().splitlines()
        assert header.endswith("| TD3, paper | idle policy | random policy |")
        assert hopper.endswith("| – | 15.0 |")
        assert ant.endswith("| 994.0 | -60.0 |")
        names, *rows = (line.split(",") for line in (figures / "final.csv").read_text().split())
        values = dict(zip(names, rows[0], strict=True))
        assert (values["idle"], values["random"]) == ("", "15.0")
        assert rows[-1][-2:] == ["994.0", "-60.0"]
        table = p3s.load_results(delayed)
        assert set(table["idle"]) == {None, 994.0}
        assert set(table["random"]) == {15.0, -60.0}


class TestPresets:
    def test_the_page_says_which_presets_stand_side_by_side(self, study):
        results = read_results([study])
        page = render_report(build_report(results))
        assert "48,000 steps · preset recommended</p>" in page
        assert (
            "Published scores were made with the settings of preset authors; "
            "these runs have preset recommended.</p>"
        ) in page
        page = render_report(build_report(read_results([study / "runs"])))
        assert "Published scores" not in page

    def test_methods_with_different_presets(self, study):
        runs = read_results([study]).runs
        for run in runs:
            run.config["preset"] = {"P3S-TD3": "authors", "TD3": "paper"}[run.method]
        line = "these runs have presets authors (P3S-TD3); paper (TD3)."
        assert published_line(Results("", runs)).endswith(line)
