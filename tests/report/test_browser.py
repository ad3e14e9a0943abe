"""The report in a real browser: headless Chromium without a network; pictures go to artifacts/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.report.references import Reference, references_text
from tests.helpers import ROOT, page_data
from tests.helpers_browser import Visit
from tests.synthetic_runs import write_study

PICTURES = ROOT / "artifacts" / "report"

METHODS, ENVS = (
    ("P3S-TD3", "ESO-TD3", "TD3"),
    ("Hopper-v1", "Walker2d-v1", "HalfCheetah-v1", "Ant-v1"),
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """A study's page and a single run's page."""
    folder = tmp_path_factory.mktemp("reports")
    study = write_study(folder / "study", METHODS, ENVS, seeds=5, evaluations=40)
    failure = {"error": "ValueError: the battery is empty", "traceback": "", "step": 12_000}
    (study / "failures/td3-ant-v1-9.json").write_text(json.dumps(failure))
    cells = json.loads((study / "cells.json").read_text())
    cells["cells"].append({"id": "td3-ant-v1-9", "run": "runs/td3-ant-v1-9", "method": "TD3",
                           "env": "Ant-v1", "seed": 9, "paper": None})  # fmt: skip
    (study / "cells.json").write_text(json.dumps(cells))
    reference = Reference({}, {"idle": [994.0], "random": [-44.0]})
    (study / "references.json").write_text(references_text({"Ant-v1": reference}))
    (study_page,) = run_report(ReportOptions(runs=(study,)))
    (run_page,) = run_report(ReportOptions(runs=(study / "runs/p3s-td3-ant-v1-0",)))
    return {"study": study_page, "run": run_page}


class Page(Visit):
    """A visit to a report."""

    def __init__(self, browser, path: Path, **options):
        super().__init__(browser, path.as_uri(), **options)

    def lines(self, panel: int = 0) -> list[str]:
        """Names of the curves that a panel shows."""
        found = self.tab.locator(f'[data-panel="{panel}"] path.line')
        return found.evaluate_all("all => all.map(each => each.dataset.series)")

    def tip(self, panel: int = 0) -> str:
        return self.tab.locator(f'[data-panel="{panel}"] .tip:not([hidden])').inner_text()

    def picture(self, name: str, full: bool = True) -> None:
        super().picture(PICTURES / f"{name}.png", full)


@pytest.fixture
def visit(browser) -> Iterator:
    visits: list[Page] = []

    def open_page(path: Path, **options) -> Page:
        visits.append(Page(browser, path, **options))
        return visits[-1]

    yield open_page
    for each in visits:
        assert each.requests == []
        assert each.complaints == []
        each.context.close()


def test_curves_are_there_to_be_seen(visit, pages):
    seen = visit(pages["study"])
    for panel in range(len(ENVS)):
        assert seen.lines(panel) == list(METHODS)
    box = seen.tab.locator('[data-panel="0"] path.line').first.bounding_box()
    assert box["width"] > 300
    assert box["height"] > 50
    assert seen.tab.locator('[data-panel="0"] path.band').count() == 3
    assert seen.tab.locator("#iqm circle").count() == 3
    assert seen.tab.locator("#profile path.line").count() == 3
    assert "1 run failed" in seen.tab.locator("#failures").inner_text()
    seen.picture("study-light")


def test_a_method_is_switched_off_and_on(visit, pages):
    seen = visit(pages["study"])
    button = seen.tab.get_by_role("button", name="ESO-TD3")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert seen.lines() == ["P3S-TD3", "TD3"]
    assert seen.tab.locator("#profile path.line").count() == 2
    button.press("Enter")
    assert seen.lines() == list(METHODS)


def test_values_are_read_by_pointer_and_by_keys(visit, pages):
    seen = visit(pages["study"])
    series = page_data(pages["study"].read_text())["panels"][0]["series"][0]
    chart = seen.tab.locator('[data-panel="0"]')
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    seen.tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 90)
    step = int(re.match(r"([\d,]+) environment steps", seen.tip())[1].replace(",", ""))
    index = series["x"]["steps"].index(step)
    value = f"{series['y']['score']['mean'][index]:,.0f}"
    assert re.search(rf"P3S-TD3\s+{value}\b", seen.tip())
    assert "5 seeds" in seen.tip()
    seen.picture("study-hover", full=False)
    seen.tab.mouse.move(0, 0)
    assert seen.tab.locator('[data-panel="0"] .tip').is_hidden()
    chart.focus()
    chart.press("End")
    assert seen.tip().startswith(f"{series['x']['steps'][-1]:,} environment steps")
    chart.press("ArrowLeft")
    assert seen.tip().startswith(f"{series['x']['steps'][-2]:,} environment steps")
    chart.press("Escape")
    assert seen.tab.locator('[data-panel="0"] .tip').is_hidden()


def test_axes_and_measures(visit, pages):
    seen = visit(pages["study"])
    name = seen.tab.locator('[data-panel="0"] .axis-name')
    before = seen.tab.locator('[data-panel="0"] path.line').first.get_attribute("d")
    for kind, words in (("updates", "updates over all learners"), ("seconds", "minutes")):
        seen.tab.select_option("#x-axis", kind)
        assert name.text_content() == words
    seen.tab.select_option("#x-axis", "steps")
    seen.tab.select_option("#measure", "mean")
    assert seen.tab.locator('[data-panel="0"] path.line').first.get_attribute("d") != before
    seen.tab.check("#seeds")
    assert seen.tab.locator('[data-panel="0"] path.seed').count() == 15
    assert seen.tab.locator('[data-panel="0"] path.band').count() == 0


def test_policies_that_learn_nothing(visit, pages):
    seen = visit(pages["study"])
    for measure in ("score", "mean"):
        seen.tab.select_option("#measure", measure)
        lines = seen.tab.locator('[data-panel="3"] line.reference')
        heights = lines.evaluate_all("all => all.map(each => Number(each.getAttribute('y1')))")
        assert heights[0] < heights[1]
        names = seen.tab.locator('[data-panel="3"] .reference-name').all_text_contents()
        assert names == ["idle", "random"]
    label = seen.tab.locator('[data-panel="3"] svg').get_attribute("aria-label")
    assert label.endswith("; idle policy: 994.0; random policy: -44.0.")
    assert seen.tab.locator('[data-panel="0"] line.reference').count() == 0


def test_the_chief_of_another_run(visit, pages):
    seen = visit(pages["study"])
    assert seen.tab.locator("#strip rect").count() > 1
    before = seen.tab.locator("#beta path.line").get_attribute("d")
    seen.tab.select_option("#chief-run", label="P3S-TD3 on Ant-v1, seed 3")
    assert seen.tab.locator("#beta path.line").get_attribute("d") != before
    names = seen.tab.locator("#distances path.line").evaluate_all(
        "all => all.map(e => e.dataset.series)"
    )
    assert names == ["spread", "target", "change"]
    seen.tab.select_option("#chief-run", label="ESO-TD3 on Ant-v1, seed 0")
    assert not seen.tab.locator("#beta").is_visible()


def test_charts_speak_to_screen_readers(visit, pages):
    seen = visit(pages["study"])
    label = seen.tab.locator('[data-panel="0"] svg').get_attribute("aria-label")
    assert label.startswith("Learning curves on Hopper-v1: P3S-TD3 ends at ")
    assert "95 % interval" in label
    for chart in ("iqm", "profile", "beta", "distances"):
        assert seen.tab.locator(f"#{chart} svg[role=img]").get_attribute("aria-label")
    assert "% of the time" in seen.tab.locator("#strip").get_attribute("aria-label")
    unnamed = seen.tab.evaluate(
        "[...document.querySelectorAll('select, input, button')]"
        ".filter(each => !each.labels?.length && !each.textContent.trim()).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("page", ["study", "run"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_screen(visit, pages, page, scheme, width):
    options = {"color_scheme": scheme, "width": width, "height": 844}
    seen = visit(pages[page], **options)
    assert seen.overflow() <= 0
    assert seen.lightness() > 230 if scheme == "light" else seen.lightness() < 50
    box = seen.tab.locator('[data-panel="0"] path.line').first.bounding_box()
    assert box["width"] > 0.6 * min(width, 450)
    seen.picture(f"{page}-{scheme}-{width}")


def test_one_evaluation_of_one_seed_is_a_point(visit, tmp_path):
    envs = [*ENVS, *(f"Delayed {env}" for env in ENVS)]
    study = write_study(tmp_path / "study", METHODS, envs, seeds=1, evaluations=1)
    seen = visit(run_report(ReportOptions(runs=(study,)))[0])
    assert seen.tab.locator("[data-panel]").count() == 8
    for panel in range(8):
        points = seen.tab.locator(f'[data-panel="{panel}"] circle')
        assert points.count() == 3
        box = seen.tab.locator(f'[data-panel="{panel}"]').bounding_box()
        assert points.first.bounding_box()["x"] > box["x"] + 0.9 * box["width"]
    seen.picture("study-one-point")


def test_touch(visit, pages):
    seen = visit(pages["run"], width=390, height=844, has_touch=True)
    chart = seen.tab.locator('[data-panel="0"]')
    chart.scroll_into_view_if_needed()
    chart.tap()
    assert "champion" in seen.tip()
