"""Pages in a real browser: headless Chromium that reaches nothing but the page itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    playwright_api = pytest.importorskip(
        "playwright.sync_api", reason="there is no playwright here: pip install playwright"
    )
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """An opened page, and everything that it asked for elsewhere or complained about.

    below: whether what is below the address belongs to the page, too.
    """

    def __init__(
        self,
        browser: Any,
        address: str,
        width: int = 1280,
        height: int = 900,
        below: bool = False,
        **options: Any,
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        self.tab = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.address, self.below = address, below
        self.tab.route("**/*", self._route)
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.goto(self.address)
        self.tab.wait_for_selector("html[data-ready]", state="attached")

    def _route(self, route: Any) -> None:
        url = route.request.url
        if url == self.address or (self.below and url.startswith(self.address)):
            route.continue_()
        else:
            self.requests.append(url)
            route.abort()

    def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        return self.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")

    def lightness(self) -> float:
        """How light the page's ground is, from 0 to 255."""
        script = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"
        return sum(map(int, self.tab.evaluate(script))) / 3

    def picture(self, path: Path, full: bool = True) -> None:
        """Keep a picture of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=path, full_page=full)
