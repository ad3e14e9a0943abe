"""The page of a search: what it says of its trials, in a browser too."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from p3s.errors import UserError
from p3s.tuning.page import Axis, render_search, write_search_page
from p3s.tuning.storage import JOURNAL, open_storage
from tests.helpers import call
from tests.helpers_browser import Visit, chromium

optuna = pytest.importorskip("optuna")

SIZES = [json.dumps(size) for size in ([64, 64], [256, 256], [400, 300])]
SCORES = [10.0, 40.0, None, 30.0, 20.0, 5.0]
"""Of the trials; the third fails, the last is pruned."""
ERROR = "the parameters of learner 1 are not finite <b>"


def make_study(folder: Path, scores=SCORES, name: str = "mine"):
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    storage = open_storage(str(folder / JOURNAL))
    study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
    states = optuna.trial.TrialState
    for number, score in enumerate(scores):
        study.enqueue_trial(
            {"learning_rate": 10.0 ** (-4 + number / 4), "sizes": SIZES[number % 3]}
        )
        trial = study.ask()
        trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
        trial.suggest_categorical("sizes", SIZES)
        if score is None:
            trial.set_user_attr("error", ERROR)
            study.tell(trial, state=states.FAIL)
        elif score == 5.0:
            trial.report(score, 1)
            study.tell(trial, state=states.PRUNED)
        else:
            study.tell(trial, score)
    return study


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    make_study(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder) -> str:
    return write_search_page(folder).read_text()


def data(page: str) -> dict:
    (text,) = re.findall(r'id="data">(.*?)</script>', page)
    return json.loads(text)


class TestPage:
    def test_trials_stand_in_the_order_of_their_scores(self, page):
        rows = re.findall(r'<th scope="row">(\d)</th><td class="left[^>]*>(\w+)', page)
        assert rows == [
            ("1", "complete"), ("3", "complete"), ("4", "complete"), ("0", "complete"),
            ("5", "pruned"), ("2", "failed"),
        ]  # fmt: skip
        assert "6 trials · 4 complete · 1 pruned · 1 failed" in page
        assert "5 finished trials are few for a search" in page

    def test_what_an_error_says_is_text(self, page):
        assert "are not finite &lt;b&gt;" in page
        assert "not finite <b>" not in page

    def test_history(self, page):
        found = data(page)
        assert found["complete"] == [10, 40, None, 30, 20, None]
        assert found["pruned"] == [None] * 5 + [5]
        assert found["best"] == [10, 40, 40, 40, 40, 40]

    def test_lines(self, page):
        found = data(page)
        assert [axis["name"] for axis in found["axes"]] == ["learning_rate", "sizes", "score"]
        assert found["axes"][1]["ticks"] == [
            [0, "[64, 64]"],
            [0.5, "[256, 256]"],
            [1, "[400, 300]"],
        ]
        best = next(line for line in found["lines"] if line["best"])
        assert best["name"] == "trial 1"
        assert best["at"] == pytest.approx([1 / 8, 0.5, 1])
        assert best["texts"] == ["0.0001778", "[256, 256]", "40.0"]
        assert [line["strength"] for line in found["lines"]] == pytest.approx([0, 1, 2 / 3, 1 / 3])

    def test_a_range_of_one_value(self):
        one = optuna.distributions.FloatDistribution(2.0, 2.0)
        assert Axis("x", one).place(2.0) == 0.5

    def test_a_search_without_a_complete_trial_has_no_lines(self, tmp_path):
        study = make_study(tmp_path, [None, 5.0])
        page = render_search(study, tmp_path)
        assert 'id="values-chart"' not in page
        assert "p3s train --config" not in page
        assert data(page)["best"] == [None, None]

    def test_scores_that_are_all_alike(self, tmp_path):
        lines = data(render_search(make_study(tmp_path, [7.0] * 5), tmp_path))["lines"]
        assert all(line["at"][-1] == 1 and math.isfinite(line["strength"]) for line in lines)


class TestCommand:
    def test_report_of_a_search(self, folder, capsys):
        code, out, _ = call(capsys, "report", folder)
        assert (code, out.strip()) == (0, f"wrote {folder / 'report.html'}")

    def test_figures_are_of_runs(self, folder, tmp_path, capsys):
        code, _, told = call(capsys, "report", folder, "--figures", tmp_path)
        assert code == 2
        assert "figures are drawn of runs" in told

    def test_no_trial(self, tmp_path):
        with pytest.raises(UserError, match="has no trial yet"):
            render_search(make_study(tmp_path, []), tmp_path)

    def test_two_studies_in_one_journal(self, tmp_path, capsys):
        make_study(tmp_path)
        make_study(tmp_path, name="other")
        code, _, told = call(capsys, "report", tmp_path)
        assert code == 2
        assert "holds 2 studies, not one" in told

    def test_a_damaged_journal(self, tmp_path, capsys):
        make_study(tmp_path)
        (tmp_path / JOURNAL).write_text('{"op_code": 99, "worker_id": "x"}\n')
        code, _, told = call(capsys, "report", tmp_path)
        assert code == 2
        assert f"{JOURNAL}:1:" in told


def test_in_a_browser(folder, page):
    with chromium() as browser:
        visit = Visit(browser, (folder / "report.html").as_uri())
        assert visit.tab.locator("#values-chart path.trial").count() == 4
        assert visit.tab.locator("#history-chart circle.dot").count() == 5
        visit.tab.locator("#values-chart").focus()
        visit.tab.keyboard.press("ArrowRight")
        tip = visit.tab.locator("#values-chart .tip").inner_text()
        assert tip.split("\n")[0] == "trial 1"
        assert "[256, 256]" in tip
        visit.tab.keyboard.press("End")
        assert visit.tab.locator("#values-chart .tip").inner_text().startswith("trial 0")
        assert visit.tab.locator("path.trial.chosen").count() == 1
        visit.tab.keyboard.press("Escape")
        assert visit.tab.locator("#values-chart .tip").is_hidden()
        assert visit.complaints == []
        assert visit.requests == []
        visit.context.close()
