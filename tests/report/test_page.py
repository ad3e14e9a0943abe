"""The page of a report."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser

from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.report.export import tidy
from p3s.report.formatting import embed_json
from p3s.report.page import build_report, render_report
from p3s.report.results import read_results
from p3s.report.run_page import leave_run_page, render_run
from p3s.runs.records import read_rows
from tests.helpers import page_data
from tests.synthetic_runs import ENVS, write_rows, write_run


def page_block(text: str) -> str:
    """The embedded data as it stands in the page."""
    return text[text.index('id="data"') :].split("</script>")[0]


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

    def test_pick_of_the_chief_stands_beside_the_champion(self, own_study):
        """Rows of older runs, without it, are read as before."""
        run = own_study / "runs/p3s-td3-ant-v1-0"
        rows = [
            {**row, "chief_pick": 1, "chief_return": row["champion_return"] - 100}
            for row in read_rows(run / "evaluations.jsonl")
        ]
        write_rows(run / "evaluations.jsonl", rows)
        results = read_results([own_study])
        report = build_report(results)
        cells = report.summary.cells
        chief = cells["P3S-TD3", "Ant-v1"].measures["chief"].values
        champion = cells["P3S-TD3", "Ant-v1"].measures["champion"].values
        assert chief.tolist() == [champion[0] - 100]
        assert cells["TD3", "Ant-v1"].measures["chief"].values.size == 0
        text = render_report(report)
        assert '<option value="chief">chief\'s pick</option>' in text
        assert "chief" in page_data(text)["panels"][1]["series"][0]["y"]
        names = [
            line["name"]
            for line in page_data(render_run(results.select("P3S-TD3", "Ant-v1")[0], []))["panels"][
                0
            ]["series"]
        ]
        assert names[-2:] == ["champion", "chief's pick"]
        table = tidy(results).filter(run=str(run))
        assert table["chief_pick"].to_list() == [1] * len(table)
        assert tidy(results)["chief_return"].null_count() == len(tidy(results)) - len(table)

    def test_verdicts_and_the_seed_lottery(self, study):
        text = render_report(build_report(read_results([study])))
        for words in ("one left out:", "The seed lottery", "Holm's correction"):
            assert words in text

    def test_three_seeds_show_a_dash_for_an_interval(self, tmp_path):
        for seed in range(3):
            write_run(tmp_path / str(seed), "TD3", "Ant-v1", seed, 2)
        text = render_report(build_report(read_results([tmp_path])))
        assert "<small>–</small>" in text
        assert text.count("– stands for an interval that fewer than 4 seeds") == 1

    def test_single_run_page_is_cheap(self, study):
        run = study / "runs/p3s-td3-ant-v1-0"
        leave_run_page(run)
        started = time.process_time()
        assert leave_run_page(run) == f"report: {run / 'report.html'}"
        assert time.process_time() - started < 0.3
        (run / "report.html").unlink()

    def test_a_page_that_cannot_be_written_does_not_stop_a_run(self, tmp_path):
        assert "no report was written" in leave_run_page(tmp_path)
