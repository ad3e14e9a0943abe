"""All runs that are followed, and what of it a page does not have yet.

    a page asks     since 120: anything new?  of runs 3 and 5 everything, of run 7 the curve
    the answer      now it is 131; these summaries changed; these rows were added or begin anew

Looks are as rare as pages ask: two that ask within a moment share one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from p3s.dashboard.finding import search
from p3s.dashboard.followed import STREAMS, FollowedRun
from p3s.errors import printable
from p3s.report.formatting import count_text
from p3s.report.results import labeled_by_settings

SEARCH_EVERY, LOOK_EVERY, SEARCH_SHARE = 5.0, 0.5, 20.0
"""Seconds between two searches for runs, and between two looks at them; a search that takes long is
made less often, `SEARCH_SHARE` times its own duration later."""
READ_SECONDS = 0.5
"""How long one answer may read; the rest comes with the next."""
MOST_NOTES = 20

CURVE, DETAILS = ("evaluations",), STREAMS


class Dashboard:
    """The runs in and below some folders."""

    def __init__(self, folders: Iterable[Path]) -> None:
        given = list(folders)
        self.title = ", ".join(printable(folder.resolve().name or "/") for folder in given)
        self._roots = [folder.resolve() for folder in given]
        self._clock = count(1)
        self._lock = Lock()
        self._runs: dict[Path, FollowedRun] = {}
        self._shown: dict[int, FollowedRun] = {}
        self._numbers = count(1)
        self._next_search = self._next_look = 0.0
        self._notes: list[str] = []
        self._notes_of_search: list[str] = []
        self._changed = next(self._clock)
        """When the list of runs or the notes on it changed."""

    def answer(
        self, since: int, details: dict[int, int], curves: dict[int, int]
    ) -> dict[str, Any] | None:
        """What is new, for a page that was told everything until `since`; None if nothing is.

        details, curves: runs of which a page wants all records or the evaluations, each with the
        time until which it has them.
        """
        with self._lock:
            self._look()
            found, more = {}, False
            until = time.monotonic() + READ_SECONDS
            for wanted, streams in ((details, DETAILS), (curves, CURVE)):
                for number, then in wanted.items():
                    run = self._shown.get(number)
                    if run is not None:
                        more |= run.look_at_records(streams, until)
                        if news := run.since(then, streams):
                            found[number] = news
            changed = [run.summary for run in self._shown.values() if run.changed > since]
            told: dict[str, Any] = {"rows": found, "runs": changed}
            if self._changed > since:
                told |= {"all": list(self._shown), "notes": self._notes, "title": self.title}
            if not found and not changed and len(told) == 2 and not more:
                return None
            # Times are given out one by one, so this one is after all that was told.
            return {**told, "more": more, "now": next(self._clock), "time": round(time.time())}

    def film(self, number: int, name: str) -> Path | None:
        """The file of a film of a run; None if there is no such run."""
        with self._lock:
            run = self._shown.get(number)
            return None if run is None else run.film(name)

    def count(self) -> str:
        """How many runs there are, in words."""
        with self._lock:
            self._look()
            return count_text(len(self._shown), "run")

    def _look(self) -> None:
        """Search for runs, and look at those that are known, if that is due."""
        now = time.monotonic()
        if now < self._next_look:
            return
        if now >= self._next_search:
            self._search()
            done = time.monotonic()
            self._next_search = done + max(SEARCH_EVERY, SEARCH_SHARE * (done - now))
        elif self._look_at_configs():
            self._list()
        for run in self._shown.values():
            run.look()
        self._next_look = time.monotonic() + LOOK_EVERY

    def _search(self) -> None:
        found = search(self._roots)
        before = self._runs
        self._runs = {
            each.path: before.get(each.path) or FollowedRun(each, next(self._numbers), self._clock)
            for each in found.runs
        }
        for each in found.runs:
            self._runs[each.path].found = each
        new = self._look_at_configs()
        if new or list(before) != list(self._runs) or found.notes != self._notes_of_search:
            self._notes_of_search = found.notes
            self._list()

    def _look_at_configs(self) -> bool:
        """Read the configurations that are new; whether there were any."""
        return sum(run.look_at_config() for run in self._runs.values()) > 0

    def _list(self) -> None:
        """Name all runs, and tell what is left out."""
        runs = [run for run in self._runs.values() if run.names is not None]
        results = [result for run in runs if (result := run.as_result()) is not None]
        for run, result in zip(runs, labeled_by_settings(results), strict=True):
            run.label = result.method
        left_out = [
            printable(f"Left out: {run.found.path}: {run.problem}")
            for run in self._runs.values()
            if run.names is None
        ]
        if len(left_out) > MOST_NOTES:
            more = f"and {len(left_out) - MOST_NOTES:,} more that are left out"
            left_out[MOST_NOTES:] = [more]
        self._notes = [*self._notes_of_search, *left_out]
        self._shown = {run.number: run for run in runs}
        self._changed = next(self._clock)
