"""The dashboard in a real browser, asking a real server; pictures go to artifacts/."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from p3s.dashboard import following
from p3s.dashboard.following import Dashboard
from p3s.dashboard.serving import serve
from p3s.runs import opening
from p3s.runs.records import RunFolder, to_json_line
from tests.helpers import ROOT, small_config
from tests.helpers_browser import Visit
from tests.synthetic_runs import write_rows, write_run, write_study

PICTURES = ROOT / "artifacts" / "dashboard"
METHODS, ENVS = ("P3S-TD3", "TD3"), ("Hopper-v1", "Ant-v1")
LOST = "Failed to load resource: net::ERR_CONNECTION_REFUSED"


class Page(Visit):
    """A visit to a dashboard."""

    def poll(self) -> None:
        """Ask for what is new, after an answer that is under way."""
        self.wait("!page.asking")
        self.tab.evaluate("poll()")

    def wait(self, condition: str) -> None:
        """Wait until a condition holds; the page's policy forbids playwright to do so inside."""
        end = time.monotonic() + 15
        while not self.tab.evaluate(condition):
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.02)

    def drawn(self, selector: str) -> str:
        """The text of a part of a chart."""
        return self.tab.locator(selector).first.text_content()

    def count(self, selector: str) -> int:
        return self.tab.locator(selector).count()

    def text(self, selector: str) -> str:
        return self.tab.locator(selector).first.inner_text()

    def tick(self, *folders: str) -> None:
        """Tick these runs and no others."""
        self.tab.click("#none")
        for folder in folders:
            self.tab.locator("#table tr", has_text=folder).first.locator("input").check()
        # What a new tick asks for may have to wait for an answer that is under way.
        self.wait("drawnRuns().every((id) => kept.get(id)?.since > 0)")

    def points(self, run: int, part: str, series: int = 0) -> int:
        """The number of points of a curve."""
        path = self.tab.locator(f"#run-{run}-{part} path.line").nth(series).get_attribute("d")
        return path.count(",")

    def picture(self, name: str) -> None:
        super().picture(PICTURES / f"{name}.png")


@pytest.fixture
def visit(browser, monkeypatch) -> Iterator:
    """Opens the dashboard of a folder; afterwards nothing may have been asked for elsewhere."""
    for name in ("LOOK_EVERY", "SEARCH_EVERY", "SEARCH_SHARE"):
        monkeypatch.setattr(following, name, 0.0)
    opened: list = []

    def open_page(folder: Path, **options) -> Page:
        server = serve(Dashboard([folder]), 0)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        page = Page(browser, server.address, below=True, **options)
        opened.append((page, server, thread))
        page.server = server
        return page

    yield open_page
    for page, server, thread in opened:
        page.context.close()
        server.shutdown()
        server.server_close()
        thread.join()
        assert page.requests == []
        assert page.complaints == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A study, and a run of a population that copies."""
    folder = tmp_path_factory.mktemp("dashboards") / "runs"
    write_study(folder / "study", METHODS, ENVS, seeds=2, evaluations=40)
    write_run(folder / "copies", "P3S-TD3", "Hopper-v1", 0, evaluations=40)
    rows = [{"step": step, "best": step // 40_000 % 4, "recent_returns": [0.0] * 4,
             "copies": [[step // 40_000 % 4, 3]] if step % 40_000 == 20_000 else []}
            for step in range(4000, 160_001, 4000)]  # fmt: skip
    rows.insert(30, {"step": 121_000, "replaced": [1], "source": 0})
    write_rows(folder / "copies/lineage.jsonl", rows)
    (folder / "copies/metrics.jsonl").write_text("".join(map(to_json_line, metrics(160_000))))
    return folder


def metrics(steps: int) -> list[dict]:
    return [{"step": step, "seconds": step / 500, "steps_per_second": 500.0,
             "recent_returns": [1.0, 2.0, None, 4.0], "learners": {"value_loss": [0.5] * 4}}
            for step in range(4000, steps + 1, 4000)]  # fmt: skip


def evaluation(step: int) -> str:
    return to_json_line({"step": step, "updates": step, "learner_returns": [[1.0], [2.0]],
                         "score": 2.0, "mean": 1.5, "seconds": step / 100})  # fmt: skip


def unfinished(path: Path, steps: int = 10**6) -> None:
    """Let a run folder be one that should go on."""
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**record, "steps": steps}))


def test_everything_is_there_to_be_seen(visit, folder):
    seen = visit(folder)
    assert seen.count("#table tbody tr") == 9
    assert seen.text("#counts") == "9 complete"
    seen.tick("copies", "p3s-td3-ant-v1-0")
    assert seen.count("#panels figure") == 2
    assert seen.count(".card") == 2
    (copies,) = (
        run["id"] for run in seen.tab.evaluate("[...runs.values()]") if run["folder"] == "copies"
    )
    assert seen.points(copies, "returns") == 40
    assert seen.count(f"#run-{copies}-lineage .gift") == 4
    assert seen.count(f"#run-{copies}-lineage .cross") == 1
    assert seen.count(f"#run-{copies}-pace path.line") == 1
    (other,) = set(seen.tab.evaluate("[...shown]")) - {copies}
    names = seen.tab.locator(f"#run-{other}-distances path.line")
    assert names.evaluate_all("all => all.map(e => e.dataset.series)") == [
        "spread",
        "target",
        "change",
    ]
    assert seen.points(other, "beta") > 100
    cards = seen.tab.locator(".card").all_inner_texts()
    assert any("This scheme has no β." in text for text in cards)
    boxes = [seen.tab.locator('[data-part="beta"]').nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    seen.picture("two-runs")


def test_lanes_take_the_color_of_whom_they_descend_from(visit, folder):
    seen = visit(folder)
    seen.tick("copies")
    styles = seen.tab.locator(".lane").evaluate_all(
        "all => all.map(e => [e.getAttribute('y1'), e.style.stroke, Number(e.getAttribute('x1'))])"
    )
    fourth = sorted((x, color) for y, color, x in styles if y == max(s[0] for s in styles))
    # Copies of 0, 1, 2 at steps 20,000, 60,000 and 100,000; then 3 copies nobody but itself.
    assert [color for _, color in fourth] == ["var(--c3)", "var(--c0)", "var(--c1)", "var(--c2)"]


def test_controls(visit, folder):
    seen = visit(folder)
    seen.tick("copies")
    path = seen.tab.locator('[data-panel="0"] path.line')
    before = path.get_attribute("d")
    seen.tab.select_option("#measure", label="population mean")
    assert path.get_attribute("d") != before
    for label, words in (("updates", "updates over all learners"), ("wall-clock time", "minutes")):
        seen.tab.select_option("#x-axis", label=label)
        assert seen.drawn('[data-panel="0"] .axis-name') == words
    seen.tab.select_option("#measure", label="chief's pick")
    assert seen.text("#panels .hint") == "No evaluation yet."
    seen.tab.select_option("#returns", label="training")
    lines = seen.tab.locator('[data-part="returns"] path.line')
    names = lines.evaluate_all("all => all.map(e => e.dataset.series)")
    assert names == ["learner 0", "learner 1", "learner 3"]
    seen.tab.fill("#filter", "Ant v1-1")
    assert seen.count("#table tbody tr") == 2
    seen.tab.click("#all")
    assert len(seen.tab.evaluate("[...shown]")) == 3
    seen.tab.select_option("#state", "running")
    assert seen.text("#table tbody") == "No run matches."


def test_values_are_read_while_the_chart_grows(visit, tmp_path):
    write_run(tmp_path / "run", "TD3", "Hopper-v1", 0, evaluations=20)
    seen = visit(tmp_path)
    seen.poll()
    chart = seen.tab.locator('[data-panel="0"]')
    chart.focus()
    chart.press("Home")
    tip = seen.tab.locator('[data-panel="0"] .tip')
    assert tip.inner_text().startswith("4,000 environment steps")
    with (tmp_path / "run/evaluations.jsonl").open("a") as file:
        file.write(evaluation(84_000))
    seen.poll()
    assert seen.tab.evaluate("[...kept.values()][0].evaluations.rows.length") == 21
    assert tip.inner_text().startswith("4,000 environment steps")


def test_a_training_in_progress(visit, tmp_path):
    training = opening.begin(small_config(steps=800), tmp_path / "run")
    records = tmp_path / "run/evaluations.jsonl"
    training.run(100)
    seen = visit(tmp_path)
    assert seen.text("#counts") == "1 running"
    for until in (400, 800):
        training.run(until)
        seen.poll()
        assert seen.points(1, "returns") == len(records.read_text().splitlines()) > 1
    training.close()
    seen.poll()
    assert seen.text("#counts") == "1 complete"
    assert seen.count("#run-1-lineage .reign") > 0
    assert seen.text('[data-part="beta"] h4') == "Pull β"


def test_a_run_without_an_evaluation_yet(visit, tmp_path):
    write_run(tmp_path / "run", "P3S-TD3", "Hopper-v1", 0, evaluations=2)
    for stream in ("evaluations", "lineage"):
        (tmp_path / f"run/{stream}.jsonl").write_text("")
    owner = RunFolder(tmp_path / "run")
    owner.claim()
    seen = visit(tmp_path)
    assert seen.text("#counts") == "1 running"
    assert seen.text("#panels .hint") == "No evaluation yet."
    assert "No evaluation yet." in seen.text('[data-part="returns"]')
    assert "No review by a chief." in seen.text('[data-part="lineage"]')
    seen.picture("begun")
    owner.close()


def test_a_killed_run_that_is_resumed(visit, tmp_path):
    path = tmp_path / "run"
    write_run(path, "P3S-TD3", "Hopper-v1", 0, evaluations=20)
    unfinished(path)
    (path / ".lock").write_text("what a killed process leaves")
    seen = visit(tmp_path)
    assert seen.text("#counts") == "1 stopped"
    assert seen.points(1, "returns") == 20
    rows = (path / "evaluations.jsonl").read_bytes().splitlines(keepends=True)
    owner = RunFolder(path)
    owner.claim()
    os.truncate(path / "evaluations.jsonl", sum(map(len, rows[:5])))
    seen.poll()
    assert seen.text("#counts") == "1 running"
    assert seen.points(1, "returns") == 5
    with (path / "evaluations.jsonl").open("a") as file:
        file.write(evaluation(24_000) + evaluation(28_000)[:-9])
    seen.poll()
    assert seen.points(1, "returns") == 6
    owner.close()


def test_a_damaged_run(visit, tmp_path):
    path = tmp_path / "run <script>alert(1)"
    write_run(path, "P3S-TD3", "Hopper-v1", 0, evaluations=20)
    record = json.loads((path / "config.json").read_text())
    record["environment"]["id"] = "<img src=x onerror=alert(1)>\x1b"
    (path / "config.json").write_text(json.dumps(record))
    rows = (path / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (path / "evaluations.jsonl").write_text("".join([*rows[:8], "{{{\n", *rows[9:]]))
    huge = {"step": 1, "best": 0, "beta": 1e299, "spread": 1e-299, "change": 1e299}
    (path / "lineage.jsonl").write_text(to_json_line(huge) + to_json_line({**huge, "step": 2**52}))
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero/config.json").write_text("[" * 100_000)
    seen = visit(tmp_path)
    seen.tab.wait_for_selector(".card .note")
    warning = seen.text(".card .note")
    assert warning == "evaluations.jsonl: line 9 is damaged, only the rows before it are shown"
    assert seen.text("#table .warn") == "1 warning"
    assert seen.points(1, "returns") == 8
    assert "Left out" in seen.text("#notes")
    assert seen.count("img") == 0
    assert "<img src=x" in seen.text("#panels h3")
    assert seen.overflow() <= 0
    seen.picture("damaged")


def test_huge_numbers_keep_the_page_alive(visit, tmp_path):
    write_run(tmp_path / "run", "TD3", "Hopper-v1", 0, evaluations=2)
    values = {2**53 - 3: 1e17, 2**53 - 2: 1e17 + 16, 2**53 - 1: -1e299}
    rows = [{"step": step, "updates": 1, "learner_returns": [[value]], "score": value,
             "mean": value, "seconds": 1e299} for step, value in values.items()]  # fmt: skip
    (tmp_path / "run/evaluations.jsonl").write_text("".join(map(to_json_line, rows[:2])))
    seen = visit(tmp_path)
    assert re.fullmatch(r"\d\.\de1[67]", seen.drawn('[data-panel="0"] svg text'))
    with (tmp_path / "run/evaluations.jsonl").open("a") as file:
        file.write(to_json_line(rows[2]))
    seen.poll()
    assert seen.points(1, "returns") == 3
    assert seen.overflow() <= 0


def test_fifty_runs(visit, tmp_path):
    for seed in range(50):
        write_run(tmp_path / f"run-{seed}", "P3S-TD3", "Hopper-v1", seed, evaluations=5)
    seen = visit(tmp_path)
    assert seen.count("#table tbody tr") == 50
    assert len(seen.tab.evaluate("[...shown]")) == 4
    seen.tab.click("#all")
    seen.wait("drawnRuns().every((id) => kept.get(id)?.since > 0)")
    assert seen.count('[data-panel="0"] path.line') == 50
    assert seen.count(".card") == 4
    assert "first 4 of the 50 ticked" in seen.text("#details-hint")
    assert seen.text("#legend") == "50 runs: the list above has their colors."
    seen.tab.locator('[data-panel="0"]').press("End")
    assert seen.count('[data-panel="0"] .tip .row') == 16
    assert "and 34 below" in seen.text('[data-panel="0"] .tip')
    assert seen.overflow() <= 0
    seen.picture("fifty")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_screen(visit, folder, scheme, width):
    seen = visit(folder, color_scheme=scheme, width=width, height=844)
    seen.tick("copies", "p3s-td3-ant-v1-0")
    assert seen.overflow() <= 0
    assert seen.lightness() > 230 if scheme == "light" else seen.lightness() < 50
    box = seen.tab.locator('[data-panel="0"] path.line').first.bounding_box()
    assert box["width"] > 0.6 * min(width, 450)
    seen.picture(f"{scheme}-{width}")


def test_touch(visit, folder):
    seen = visit(folder, width=390, height=844, has_touch=True)
    seen.tick("copies")
    chart = seen.tab.locator('[data-part="returns"] .chart')
    chart.scroll_into_view_if_needed()
    chart.tap()
    assert "champion" in seen.text('[data-part="returns"] .tip')


def test_charts_speak_to_screen_readers(visit, folder):
    seen = visit(folder)
    seen.tick("copies")
    lineage = seen.tab.locator('[data-part="lineage"] .chart').get_attribute("aria-label")
    assert lineage == "Lineage: learner 0 is best; 3 copies, 1 replaced, 0 children."
    for chart in seen.tab.locator(".chart svg[role=img], .chart[role=img]").all():
        assert chart.get_attribute("aria-label")
    unnamed = seen.tab.evaluate(
        "[...document.querySelectorAll('select, input, button')]"
        ".filter(each => !each.labels?.length && !each.textContent.trim()).length"
    )
    assert unnamed == 0


def test_nothing_there_yet(visit, tmp_path):
    seen = visit(tmp_path)
    assert "No runs yet" in seen.text("#empty")
    assert seen.tab.locator("#runs").is_hidden()
    seen.picture("empty")
    write_run(tmp_path / "run", "TD3", "Hopper-v1", 0, evaluations=3)
    seen.poll()
    assert seen.text("#counts") == "1 complete"
    assert seen.count(".card") == 1


def test_a_film(visit, tmp_path):
    pytest.importorskip("imageio", reason="there is no imageio here: pip install 'p3s[video]'")
    from p3s.policies.film import write_film

    write_run(tmp_path / "run", "TD3", "Hopper-v1", 0, evaluations=3)
    (tmp_path / "run/videos").mkdir()
    write_film(tmp_path / "run/videos/step-900.gif", [np.full((32, 32, 3), 99, np.uint8)] * 4, 30)
    seen = visit(tmp_path)
    seen.wait("document.querySelector('.more img')?.naturalWidth === 32")
    write_film(tmp_path / "run/videos/step-4000.mp4", [np.full((32, 32, 3), 99, np.uint8)] * 4, 30)
    seen.poll()
    seen.wait("document.querySelector('.more video')?.readyState >= 1")
    assert seen.text(".more h4") == "Film of step 4,000"


def test_a_dashboard_that_has_ended(visit, folder):
    seen = visit(folder)
    seen.wait("!page.asking")
    assert seen.text("#live") == "live"
    seen.tab.route("**/rows*", lambda route: route.abort("connectionrefused"))
    seen.poll()
    assert seen.text("#live") == "no answer: has the dashboard ended?"
    assert seen.count("#table tbody tr") == 9
    seen.tab.unroute("**/rows*")
    seen.poll()
    assert seen.text("#live") == "live"
    assert LOST in seen.complaints  # once per poll; the page polls by itself too
    seen.complaints = [each for each in seen.complaints if each != LOST]
