"""Reports: what is read, what is said about it, and the page, figures, tables and export of it."""

from __future__ import annotations

import json
import re
import shutil
import time
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.cli import main
from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.cli.train import parse_train
from p3s.errors import UserError
from p3s.report.context import cautions, differing_settings, provenance_rows
from p3s.report.curves import method_curve, thin
from p3s.report.export import export_results
from p3s.report.figures import COLOURS
from p3s.report.formatting import embed_json
from p3s.report.guidance import lineage_strip
from p3s.report.page import TEMPLATES, build_report, render_report
from p3s.report.results import read_results, read_run
from p3s.report.run_page import leave_run_page
from p3s.report.summary import final_value, summarise
from p3s.report.tables import Table, to_latex, to_markdown
from p3s.runs.records import read_rows

from .synthetic_runs import write_rows, write_run, write_study

METHODS, ENVS = ("P3S-TD3", "TD3"), ("Hopper-v1", "Ant-v1")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "study"
    return write_study(folder, METHODS, ENVS, seeds=5, evaluations=12)


@pytest.fixture
def own_study(study, tmp_path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(study, tmp_path / "study"))


def page_data(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


class TestReading:
    def test_study(self, study):
        results = read_results([study])
        assert results.title == "A made-up study"
        assert (results.methods, results.envs) == (list(METHODS), list(ENVS))
        assert len(results.runs) == 20
        assert all(run.complete for run in results.runs)
        assert results.select("P3S-TD3", "Ant-v1")[0].paper == 5339.66
        assert not results.notes

    def test_plain_folders_get_labels_from_their_settings(self, study, tmp_path):
        results = read_results([study / "runs"])
        assert set(results.methods) == {"p3s-td3", "single-td3"}
        assert set(results.envs) == {"Hopper-v5", "Ant-v5"}
        write_run(tmp_path / "a", "P3S-TD3", "Ant-v1", 0, d_min=0.02, rho=3.0)
        write_run(tmp_path / "b", "P3S-TD3", "Ant-v1", 0, d_min=0.05, rho=3.0)
        assert read_results([tmp_path]).methods == ["p3s-td3, d_min 0.02", "p3s-td3, d_min 0.05"]

    def test_damaged_runs_are_said_and_the_rest_used(self, own_study):
        runs = sorted((own_study / "runs").iterdir())
        (runs[0] / "config.json").write_text("{")
        file = runs[1] / "evaluations.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:3], "{broken\n", *lines[3:]]))
        (runs[2] / "evaluations.jsonl").write_text("")
        shutil.rmtree(runs[3])
        (runs[4] / "evaluations.jsonl").write_text(lines[0] + '{"step": 8000}\n')
        results = read_results([own_study])
        notes = "\n".join(results.notes)
        assert len(results.runs) == 17
        assert f"left out: {runs[0] / 'config.json'} is damaged" in notes
        assert f"line 4 of {file} is damaged: the 3 before it are used" in notes
        assert f"left out: {runs[2]} has no evaluation yet" in notes
        assert f"1 of 20 runs have not begun: {runs[3].name}" in notes
        assert f"line 2 of {runs[4] / 'evaluations.jsonl'} lacks updates" in notes
        page = render_report(build_report(results))
        assert "is damaged: the 3 before it are used" in page

    def test_a_last_line_still_being_written_is_no_damage(self, own_study):
        run = sorted((own_study / "runs").iterdir())[0]
        with (run / "evaluations.jsonl").open("a") as file:
            file.write('{"step": 52')
        assert read_run(run)[1] == []

    def test_failures(self, own_study):
        first, name = (
            json.loads((own_study / "cells.json").read_text())["cells"][i]["id"] for i in (0, 3)
        )
        failure = {"error": "the <battery> is empty", "traceback": "Traceback…", "step": 240}
        for each in (first, name):
            (own_study / "failures" / f"{each}.json").write_text(json.dumps(failure))
        rows = read_rows(own_study / "runs" / name / "evaluations.jsonl")
        write_rows(own_study / "runs" / name / "evaluations.jsonl", rows[:4])
        results = read_results([own_study])
        assert results.failures == [{"run": name, **failure}]  # the first went on to its end
        page = render_report(build_report(results))
        assert "1 run failed" in page
        assert "the &lt;battery&gt; is empty" in page

    def test_the_same_seed_twice_is_no_replication(self, study, tmp_path):
        run = next(iter((study / "runs").iterdir()))
        shutil.copytree(run, tmp_path / "again")
        results = read_results([run, tmp_path / "again", run])
        assert len(results.runs) == 1
        assert results.notes == [
            f"left out: {tmp_path / 'again'} repeats a seed of a longer or equal run"
        ]

    def test_bad_input(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken/cells.json").write_text('{"cells": 3}')
        for paths, message in (
            ([], "give run folders"),
            ([tmp_path / "nowhere"], "is not a run, nor a folder"),
            ([tmp_path / "empty"], "holds no run"),
            ([tmp_path / "broken"], "cells.json is damaged"),
        ):
            with pytest.raises(UserError, match=message):
                read_results(paths)


def small_run(path: Path, scores: list[float], seed: int = 0, steps: int | None = None, **fields):
    """A run of one learner with these scores, at steps 100, 200, …"""
    write_run(path, fields.pop("method", "TD3"), "Pendulum-v1", seed, 1, **fields)
    rows = [
        {"step": 100 * (index + 1), "updates": 10 * index, "learner_returns": [[score]],
         "score": score, "mean": score, "champion": None, "champion_return": None,
         "seconds": float(index)}
        for index, score in enumerate(scores)
    ]  # fmt: skip
    write_rows(path / "evaluations.jsonl", rows)
    config = json.loads((path / "config.json").read_text())
    config["steps"] = 100 * len(scores) if steps is None else steps
    (path / "config.json").write_text(json.dumps(config))


class TestNumbers:
    def test_final_value_is_the_mean_of_the_last_tenth(self, tmp_path):
        small_run(tmp_path / "short", [1, 2, 3])
        assert final_value(read_run(tmp_path / "short")[0], "score", 1e9) == 3
        assert final_value(read_run(tmp_path / "short")[0], "score", 250) == 2
        small_run(tmp_path / "long", list(range(40)))
        assert final_value(read_run(tmp_path / "long")[0], "score", 1e9) == np.mean(
            [36, 37, 38, 39]
        )
        assert np.isnan(final_value(read_run(tmp_path / "long")[0], "champion_return", 1e9))

    def test_unequal_lengths(self, tmp_path):
        small_run(tmp_path / "a", [1, 2, 3, 4], seed=0)
        small_run(tmp_path / "b", [3, 4, 5, 6, 7, 8], seed=1)
        small_run(tmp_path / "c", [100, 100], seed=2, steps=400)
        results = read_results([tmp_path])
        summary = summarise(results, rng())
        cell = summary.cells["single-td3", "Pendulum-v1"]
        assert summary.scales["Pendulum-v1"].step == 400
        assert (cell.seeds, cell.score.values.tolist()) == ([0, 1], [4.0, 6.0])
        assert cell.area.values.tolist() == [2.5, 4.5]
        assert "runs that have not come so far are in the curves only" in summary.notes[0]
        said = "\n".join(cautions(results))
        assert "runs of different step counts are mixed: 400 (2 runs), 600 (1 runs)" in said
        assert "1 runs are not complete: single-td3 on Pendulum-v1, seed 2" in said
        curve = method_curve(results.runs, rng())
        assert curve.counts.tolist() == [3, 3, 2, 2, 1, 1]
        assert curve.bands["score"].mean.tolist() == pytest.approx([104 / 3, 106 / 3, 4, 5, 7, 8])
        assert np.isnan(curve.bands["score"].low[-1])
        assert np.isnan(curve.bands["champion"].mean).all()

    def test_steps_between_evaluations_are_interpolated(self, tmp_path):
        small_run(tmp_path / "a", [0, 10, 20], seed=0)
        small_run(tmp_path / "b", [0, 0, 0], seed=1)
        rows = read_rows(tmp_path / "b/evaluations.jsonl")
        rows[1]["step"] = 150
        write_rows(tmp_path / "b/evaluations.jsonl", rows)
        curve = method_curve(read_results([tmp_path]).runs, rng())
        assert curve.steps.tolist() == [100, 150, 200, 300]
        assert curve.bands["score"].lines[0].tolist() == [0, 5, 10, 20]

    def test_best_of_n_single_runs(self, study):
        summary = summarise(read_results([study]), rng())
        cell = summary.cells["TD3", "Ant-v1"]
        values = np.sort(cell.score.values)
        # The maximum of 4 of 5 is the largest unless that one is left out.
        assert cell.best_of["count"] == 4
        assert cell.best_of["full"] == pytest.approx(0.8 * values[4] + 0.2 * values[3])
        assert cell.best_of["equal"] < cell.best_of["full"]
        assert summary.cells["P3S-TD3", "Ant-v1"].best_of == {}

    def test_scales_and_aggregates(self, study):
        summary = summarise(read_results([study]), rng())
        scale = summary.scales["Hopper-v1"]
        assert (scale.low, scale.high, scale.source) == (0.0, 3705.92, "highest published score")
        ours, theirs = summary.aggregates
        assert (ours.method, theirs.method) == METHODS
        cells = [summary.cells["TD3", env] for env in ENVS]
        parts = [cell.score.values / cell.paper for cell in cells]
        assert theirs.gap == pytest.approx(np.mean([np.maximum(0, 1 - part) for part in parts]))
        assert ours.iqm_interval.low < ours.iqm < ours.iqm_interval.high
        assert ours.profile[0] == 1.0
        forth, back = summary.improvements
        assert forth.chance + back.chance == 1.0
        assert summary.best("Ant-v1") == "P3S-TD3"

    def test_without_published_scores_the_best_is_1(self, study):
        summary = summarise(read_results([study / "runs"]), rng())
        scale = summary.scales["Ant-v5"]
        means = [cell.score.mean for cell in summary.cells.values() if cell.env == "Ant-v5"]
        assert scale.high == pytest.approx(max(means))
        assert np.isnan(summary.aggregates[0].gap)

    def test_mixed_versions_missing_seeds_and_few_seeds(self, own_study):
        runs = sorted((own_study / "runs").iterdir())
        config = json.loads((runs[0] / "config.json").read_text())
        config["versions"]["jax"], config["commit"] = "0.11.0", None
        (runs[0] / "config.json").write_text(json.dumps(config))
        shutil.rmtree(own_study / "runs/td3-ant-v1-3")
        shutil.rmtree(own_study / "runs/td3-ant-v1-4")
        results = read_results([own_study])
        said = "\n".join(cautions(results))
        assert "runs made with different commits are mixed" in said
        assert "runs made with different versions are mixed" in said
        assert "TD3 on Ant-v1 lacks seeds that others have: 3, 4" in said
        assert "as few as 3 seeds in some places" in said
        assert "jax 0.10.2 (17 runs), 0.11.0 (1 runs)" in dict(provenance_rows(results))["versions"]

    def test_settings_that_differ(self, study):
        methods, rows = differing_settings(read_results([study]))
        assert methods == list(METHODS)
        assert dict(rows)["scheme"] == ["p3s", "single"]
        assert dict(rows)["scheme.d_min"] == ["0.05 (Hopper-v1); 0.02 (Ant-v1)", "–"]
        assert "algorithm.discount" not in dict(rows)
        assert "environment" not in dict(rows)

    def test_lineage_strip(self, tmp_path):
        write_run(tmp_path / "run", "P3S-TD3", "Ant-v1", 0, 2)
        rows = [{"step": 100 * (i + 1), "best": b} for i, b in enumerate([None, 1, 1, 0, 2, 2])]
        write_rows(tmp_path / "run/lineage.jsonl", rows)
        run = read_run(tmp_path / "run")[0]
        parts = [(200, 400, 1), (400, 500, 0), (500, 8000, 2)]
        assert lineage_strip(run) == parts
        assert lineage_strip(run, most=2) == [(200, 500, 1), (500, 8000, 2)]

    def test_thin(self):
        assert thin(3, 120).tolist() == [0, 1, 2]
        assert thin(250, 4).tolist() == [0, 83, 166, 249]


class Outline(HTMLParser):
    """What of a page a test asks for: headers without scope, and everything from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.bare_headers, self.outside, self.tags = 0, [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.bare_headers += tag == "th" and "scope" not in values
        address = values.get("src") or values.get("href") or ""
        if address and not address.startswith(("#", "data:")):
            self.outside.append(address)


class TestPage:
    def test_study(self, study, tmp_path):
        (page,) = run_report(ReportOptions(runs=(study,), out=tmp_path / "report.html"))
        text = page.read_text()
        outline = Outline(text)
        assert outline.outside == []
        assert outline.bare_headers == 0
        assert outline.tags.count("table") >= 5
        data = page_data(text)
        assert [panel["name"] for panel in data["panels"]] == list(ENVS)
        series = data["panels"][0]["series"][0]
        assert series["name"] == "P3S-TD3"
        assert set(series["y"]) == {"score", "champion", "mean"}
        assert len(series["x"]["seconds"]) == len(series["y"]["mean"]["low"]) == 12
        assert len(series["y"]["score"]["lines"]) == 5
        assert [run["name"] for run in data["chief"]] == [
            f"P3S-TD3 on {env}, seed {seed}" for env in ENVS for seed in range(5)
        ]
        assert set(data["chief"][0]) == {
            "name", "strip", "steps", "beta", "spread", "target", "change"
        }  # fmt: skip
        for words in ("Final performance", "Settings that differ", "Provenance", "0123456789ab"):
            assert words in text

    def test_best_is_bold_and_the_paper_stands_beside_it(self, study):
        report = build_report(read_results([study]))
        page = render_report(report)
        score = report.summary.cells["P3S-TD3", "Ant-v1"].score
        assert f'<td class="best">{score.mean:,.0f}<small>{score.interval.low:,.0f} to' in page
        assert page.count('class="best"') == len(ENVS)
        assert "<td>5,340<small>" in page

    def test_same_seed_same_page(self, study):
        pages = [render_report(build_report(read_results([study]))) for _ in range(2)]
        assert pages[0] == pages[1]
        assert render_report(build_report(read_results([study]), seed=1)) != pages[0]

    def test_user_strings_are_escaped(self, own_study):
        nasty = "</script><img src=x onerror=alert(1)>\u2028&'\""
        cells = json.loads((own_study / "cells.json").read_text())
        cells["title"] = nasty
        for cell in cells["cells"]:
            cell["method"] = f"{cell['method']} {nasty}"
            cell["env"] = f"{cell['env']} {nasty}"
        (own_study / "cells.json").write_text(json.dumps(cells))
        text = render_report(build_report(read_results([own_study])))
        assert "<img" not in text
        assert "\u2028" not in page_block(text)
        assert Outline(text).tags.count("script") == 2
        assert page_data(text)["panels"][0]["name"] == f"Hopper-v1 {nasty}"

    def test_embedded_json(self):
        assert embed_json(["</script>", "\u2028"]) == '["\\u003c/script\\u003e","\\u2028"]'

    def test_one_seed_and_one_method(self, tmp_path):
        write_run(tmp_path / "runs/a", "TD3", "Ant-v1", 0, 1)
        text = render_report(build_report(read_results([tmp_path])))
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)
        assert page_data(text)["chief"] == []

    def test_single_run(self, study):
        run = study / "runs/p3s-td3-ant-v1-0"
        (page,) = run_report(ReportOptions(runs=(run,)))
        text = page.read_text()
        assert page == run / "report.html"
        names = [series["name"] for series in page_data(text)["panels"][0]["series"]]
        assert names == ["learner 0", "learner 1", "learner 2", "learner 3", "champion"]
        assert len(page_data(text)["chief"]) == 1
        assert "p3s-td3 on Ant-v5, seed 0" in text
        page.unlink()

    def test_single_run_page_is_cheap(self, study):
        run = study / "runs/p3s-td3-ant-v1-0"
        leave_run_page(run)
        started = time.process_time()
        assert leave_run_page(run) == f"report: {run / 'report.html'}"
        assert time.process_time() - started < 0.3
        (run / "report.html").unlink()

    def test_a_page_that_cannot_be_written_does_not_stop_a_run(self, tmp_path):
        assert "no report was written" in leave_run_page(tmp_path)


# Colours as people see them who lack one kind of cone (Machado et al. 2009, severity 1).
SIGHT = {
    "usual": np.eye(3),
    "no M cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.01182, 0.04294, 0.968881]],
    "no L cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "no S cones": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.3039]],
}  # fmt: skip


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, in which distances are about as large as they look."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("sight", sorted(SIGHT))
def test_colours_can_be_told_apart(sight):
    style = (TEMPLATES / "page.css").read_text()
    light, dark = np.reshape(re.findall(r"--c\d: (#\w{6});", style), (2, 8)).tolist()
    assert tuple(light) == COLOURS
    for colours, ground in ((light, "#fdfdfc"), (dark, "#14171a")):
        seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in colours]
        for one, other in combinations(range(8), 2):
            # Of the first four none has dashes; later ones differ in dashes from those.
            least = 14 if other < 4 else 8
            assert np.linalg.norm(seen[one] - seen[other]) > least
        for colour in colours:
            bright = sorted(
                linear(each) @ [0.2126, 0.7152, 0.0722] + 0.05 for each in (colour, ground)
            )
            assert bright[1] / bright[0] > 3


def page_block(text: str) -> str:
    """The embedded data as it stands in the page."""
    return text[text.index('id="data"') :].split("</script>")[0]


class TestFiguresAndTables:
    def test_every_figure_and_table(self, study, tmp_path):
        figures = tmp_path / "figures"
        written = run_report(
            ReportOptions(runs=(study,), out=tmp_path / "report.html", figures=figures)
        )
        assert all(path.stat().st_size > 50 for path in written)
        names = {path.name for path in figures.iterdir()}
        for name in ("curves", "profile", "iqm", "population-Hopper-v1", "population-Ant-v1"):
            assert {f"{name}.png", f"{name}.svg", f"{name}.pdf"} <= names
        for name in ("final", "aggregates", "improvement"):
            assert {f"{name}.md", f"{name}.tex", f"{name}.csv"} <= names
        header, row, *_ = (figures / "final.csv").read_text().splitlines()
        values = dict(zip(header.split(","), row.split(","), strict=True))
        assert (values["environment"], values["method"]) == ("Hopper-v1", "P3S-TD3")
        assert float(values["score_low"]) < float(values["score"]) < float(values["score_high"])
        assert values["paper"] == "3705.92"
        assert "**" in (figures / "final.md").read_text()
        assert r"\textbf{" in (figures / "final.tex").read_text()

    def test_latex_and_markdown_by_hand(self):
        table = Table("t", ["a_b", "50 %"], [["x|y", "1 ± 2"], ["{z}", "–"]], frozenset({(0, 1)}))
        assert to_markdown(table).splitlines() == [
            "| a_b | 50 % |", "| --- | ---: |", "| x\\|y | **1 ± 2** |", "| {z} | – |",
        ]  # fmt: skip
        assert to_latex(table).splitlines() == [
            r"\begin{tabular}{lr}", r"\toprule", r"a\_b & 50 \% \\", r"\midrule",
            r"x|y & \textbf{1 $\pm$ 2} \\", r"\{z\} & -- \\", r"\bottomrule", r"\end{tabular}",
        ]  # fmt: skip


class TestExport:
    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_a_row_for_each_run_evaluation_and_learner(self, study, tmp_path, suffix):
        out = export_results(study, tmp_path / "out" / f"results.{suffix}")
        table = p3s.load_results(out)
        assert len(table) == 2 * 5 * 12 * (4 + 1)
        row = table.filter(run=str(study / "runs/p3s-td3-ant-v1-3"), step=8000, learner=2).row(
            0, named=True
        )
        written = read_rows(Path(row["run"], "evaluations.jsonl"))[1]
        assert row["learner_return"] == pytest.approx(np.mean(written["learner_returns"][2]))
        assert row["score"] == pytest.approx(written["score"])
        assert (row["method"], row["env"], row["seed"]) == ("P3S-TD3", "Ant-v1", 3)
        assert (row["scheme"], row["episodes"], row["paper"]) == ("p3s", 10, 5339.66)
        assert p3s.load_results(study).shape == table.shape
        runs = [study / "runs" / f"p3s-td3-ant-v1-{seed}" for seed in (1, 3)]
        assert len(p3s.load_results(*runs)) == 2 * 12 * 4

    def test_bad_input(self, study, tmp_path):
        with pytest.raises(UserError, match=r"not 'results.xlsx'"):
            export_results(study, tmp_path / "results.xlsx")
        with pytest.raises(UserError, match="is not a run"):
            p3s.load_results(tmp_path / "nothing.parquet")


class TestCommand:
    def test_no_report_arrives(self):
        for words, report in (([], True), (["--no-report"], False)):
            assert parse_train(["Pendulum-v1", *words])[1].report is report

    def call(self, capsys, *arguments) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["report", *map(str, arguments)])
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    def test_writes_where_told(self, capsys, study, tmp_path):
        page = tmp_path / "new/page.html"
        for runs in (study, study / "runs/td3-ant-v1-0"):
            code, output, _ = self.call(capsys, runs, "-o", page, "--title", "T & T")
            assert (code, output) == (0, f"wrote {page}\n")
            assert "<title>T &amp; T</title>" in page.read_text()

    def test_bad_input(self, capsys, study, tmp_path):
        for arguments, message in (
            ([], "give run folders"),
            ([tmp_path], "holds no run"),
            ([study, "-o", "report.pdf"], "the page is written as .html, not 'report.pdf'"),
        ):
            code, _, errors = self.call(capsys, *arguments)
            assert code == 2
            assert message in errors
