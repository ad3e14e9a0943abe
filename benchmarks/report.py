"""How long a report of 200 runs x 250 evaluations takes, its size, and how soon it can be used.

    python benchmarks/report.py              build time, size, time to interactive in Chromium
    python benchmarks/report.py --coverage   how often the intervals contain the true value
    python benchmarks/report.py --picture runs/demo/report.html docs/images/report.png

Run from a checkout: the made-up runs come from tests/synthetic_runs.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.synthetic_runs import write_study

from p3s.cli.report import Options as ReportOptions
from p3s.cli.report import run_report
from p3s.report.run_page import write_run_page
from p3s.report.statistics import MIN_SEEDS, iqm, mean_intervals, percentile_interval

ENVS = ("Hopper-v1", "Walker2d-v1", "HalfCheetah-v1", "Ant-v1", "Delayed Hopper-v1",
        "Delayed Walker2d-v1", "Delayed HalfCheetah-v1", "Delayed Ant-v1")  # fmt: skip
SPREADS = (1.0, 2.0, 0.5, 3.0)
"""How far seeds differ in each made-up environment."""
METHODS = ("P3S-TD3", "ESO-TD3", "Re-TD3", "DRL-TD3", "TD3")


def time_report() -> None:
    """Build a large report and open it."""
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder) / "study", METHODS, ENVS, seeds=5, evaluations=250)
        started, worked = time.perf_counter(), time.process_time()
        (page,) = run_report(ReportOptions(runs=(study,)))
        worked = time.process_time() - worked
        print(f"200 runs x 250 evaluations: {time.perf_counter() - started:.1f} s", end=" ")
        print(f"({worked:.1f} s of processor time)")
        print(f"size: {page.stat().st_size / 1e6:.2f} MB")
        run = sorted((study / "runs").iterdir())[0]
        started = time.perf_counter()
        write_run_page(run)
        print(f"page of one run: {time.perf_counter() - started:.2f} s")
        milliseconds = time_to_interactive(page)
        if milliseconds is not None:
            print(f"interactive in Chromium after: {milliseconds / 1000:.2f} s")


@contextmanager
def chromium_tab(**options: Any) -> Iterator[Any]:
    """A tab of headless Chromium; None where there is no chromium or no playwright."""
    path = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        yield None
        return
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser.new_page(**options)
        browser.close()


def time_to_interactive(page: Path) -> float | None:
    """Milliseconds from navigation until all charts are drawn and the switches work."""
    with chromium_tab() as tab:
        if tab is None:
            print("interactive: not measured, there is no chromium or no playwright")
            return None
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        return float(tab.evaluate("document.documentElement.dataset.ready"))


def take_picture(page: Path, out: Path) -> None:
    """The upper part of a page, from the title to the settings, as PNG."""
    with chromium_tab(viewport={"width": 1100, "height": 900}) as tab:
        if tab is None:
            sys.exit("a picture needs chromium and playwright")
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        end = tab.locator("#settings").bounding_box()["y"]
        tab.screenshot(
            path=out, full_page=True, clip={"x": 0, "y": 0, "width": 1100, "height": end}
        )


def draw(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Made-up scores with mean 0."""
    if kind == "normal":
        return rng.normal(size=shape)
    if kind == "skewed":
        return rng.gamma(2.0, size=shape) - 2.0
    good = rng.random(shape) < 0.7
    return np.where(good, rng.normal(1.0, 0.3, shape), rng.normal(-1.0, 0.3, shape)) - 0.4


def coverage(kind: str, envs: int, seeds: int, trials: int = 20_000) -> float:
    """How often the 95 % interval of the mean holds the true mean; NaN where there is none.

    Trials are given as points of one long curve, a thousand at a time.
    """
    rng, hits = np.random.default_rng(0), 0
    if envs == 1 and seeds < MIN_SEEDS:
        return np.nan
    for _ in range(trials // 1000):
        scores = draw(kind, (envs, seeds, 1000), rng)
        strata = [own * scale for own, scale in zip(scores, SPREADS, strict=False)]
        low, high = mean_intervals(strata, rng, resamples=2000)
        hits += int(((low <= 0.0) & (high >= 0.0)).sum())
    return hits / trials


def iqm_coverage(envs: int, seeds: int, trials: int = 2000) -> float:
    """The same for the interquartile mean, whose true value is 0 for normal scores."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(trials):
        low, high = percentile_interval(
            iqm, list(rng.normal(size=(envs, seeds))), rng, resamples=1000
        )
        hits += low <= 0.0 <= high
    return hits / trials


def print_coverage() -> None:
    """Coverage tables as Markdown."""
    counts = (2, 3, 4, 5, 10, 20)
    print("| scores | environments | " + " | ".join(f"{n} seeds" for n in counts) + " |")
    print("|---|---:|" + "---:|" * len(counts))
    for kind in ("normal", "skewed", "two modes"):
        for envs in (1, 4):
            found = [coverage(kind, envs, seeds) for seeds in counts]
            cells = ["–" if np.isnan(share) else f"{share:.1%}" for share in found]
            print(f"| {kind} | {envs} | " + " | ".join(cells) + " |", flush=True)
    cells = [f"{iqm_coverage(4, seeds):.1%}" for seeds in counts]
    print("| IQM, normal | 4 | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--picture", nargs=2, type=Path, metavar=("PAGE", "OUT"))
    arguments = parser.parse_args()
    if arguments.coverage:
        print_coverage()
    elif arguments.picture:
        take_picture(*arguments.picture)
    else:
        time_report()
