"""Records that are read while they are written, cut back, damaged, or long."""

from __future__ import annotations

import json
import os
import time
from itertools import count, pairwise
from pathlib import Path

import pytest

from p3s.dashboard import reading
from p3s.dashboard.reading import Record, last_rows
from p3s.dashboard.shortening import evaluation, events, measured, review
from p3s.runs.records import to_json_line


def row(step: int, score: float = 1.0) -> dict:
    return {"step": step, "updates": step, "learner_returns": [[score, score], [0.0]],
            "score": score, "mean": score / 2, "seconds": float(step)}  # fmt: skip


def lines(steps, score: float = 1.0) -> bytes:
    return "".join(to_json_line(row(step, score)) for step in steps).encode()


class Page:
    """A page that keeps what it is told of a record, by the page's own rules."""

    def __init__(self, record: Record, clock) -> None:
        self.record, self.clock = record, clock
        self.since, self.rows, self.events = 0, [], []
        self.times_anew = 0

    def look(self) -> list[int]:
        """The steps that the page shows after another look."""
        while self.record.look(time.monotonic() + 10):
            pass
        news = self.record.since(self.since)
        self.since = next(self.clock)
        if news.get("anew"):
            self.rows, self.events = [], []
            self.times_anew += 1
        self.rows += news.get("rows", [])
        self.events += news.get("events", [])
        return [numbers[0] for numbers in self.rows]


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path.resolve() / "evaluations.jsonl"


@pytest.fixture
def page(file) -> Page:
    clock = count(1)
    return Page(Record(file, evaluation, clock), clock)


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(data)


def test_only_new_rows_are_told(file, page):
    assert page.look() == []
    append(file, lines([100, 200]))
    assert page.look() == [100, 200]
    append(file, lines([300]))
    page.record.look(time.monotonic() + 1)
    assert [entry[0] for entry in page.record.since(page.since)["rows"]] == [300]
    assert page.look() == [100, 200, 300]
    assert page.record.since(page.since) == {}
    assert page.times_anew == 1
    assert page.rows[0] == [100, 100, 100, 1, 0.5, None, None, [1, 0]]


def test_a_row_that_is_being_written_waits(file, page):
    line = lines([200])
    append(file, lines([100]) + line[:-20])
    assert page.look() == [100]
    append(file, line[-20:-1])
    assert page.look() == [100]
    append(file, line[-1:])
    assert page.look() == [100, 200]
    assert page.record.note is None


def test_rows_after_a_resume_replace_those_that_were_cut(file, page):
    append(file, lines([100, 200, 300]))
    assert page.look() == [100, 200, 300]
    os.truncate(file, len(lines([100])))
    assert page.look() == [100]
    append(file, lines([200, 300], score=7.0))
    assert page.look() == [100, 200, 300]
    assert page.rows[-1][3] == 7


def test_a_cut_between_two_looks_is_seen_although_the_file_is_longer(file, page):
    append(file, lines([100, 200, 300]))
    page.look()
    os.truncate(file, len(lines([100])))
    append(file, lines([200, 300, 400, 500], score=-2.5))
    assert page.look() == [100, 200, 300, 400, 500]
    assert page.rows[1][3] == -2.5


def test_a_file_that_goes_and_comes(file, page):
    append(file, lines([100]))
    page.look()
    file.unlink()
    assert page.look() == []
    append(file, lines([50]))
    assert page.look() == [50]


@pytest.mark.parametrize(
    "damage",
    [
        b"{{{\n", b"null\n", b"\xff\xfe\x00\n", b'{"step": 1e400}\n', b"[" * 100_000 + b"\n",
        b'{"step": "\\ud800"}\n', lines([200]).replace(b"200", b"201", 1),
        json.dumps({**row(200), "score": 10**30, "step": 10**30}).encode() + b"\n",
    ],
)  # fmt: skip
def test_rows_before_a_damaged_one_are_shown(file, page, damage):
    append(file, lines([100]) + damage + lines([300]))
    assert page.look() == [100]
    assert page.record.note.startswith("evaluations.jsonl: line 2 ")
    # A resume cuts the damage off.
    os.truncate(file, len(lines([100])))
    append(file, lines([200]))
    assert page.look() == [100, 200]
    assert page.record.note is None


def test_a_line_without_an_end_is_read_once(file, page, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_ROW", 2000)
    append(file, lines([100]) + b" " * 5000)
    assert page.look() == [100]
    assert "line 2 is too long" in page.record.note


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_what_is_no_file_of_the_run_is_not_read(file, page, kind, tmp_path):
    (tmp_path / "secret").write_bytes(lines([100]))
    {
        "link": lambda: file.symlink_to(tmp_path / "secret"),
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
        "folder": file.mkdir,
    }[kind]()
    assert page.look() == []
    assert "cannot be read" in page.record.note
    rows, note = last_rows(file, "evaluations")
    assert rows == []
    assert "cannot be read" in note


def test_a_folder_that_became_a_link_is_not_read(tmp_path):
    there = tmp_path.resolve() / "there"
    there.mkdir()
    (there / "evaluations.jsonl").write_bytes(lines([100]))
    (tmp_path / "run").symlink_to(there)
    assert last_rows(tmp_path.resolve() / "run/evaluations.jsonl", "evaluations")[0] == []
    assert len(last_rows(there / "evaluations.jsonl", "evaluations")[0]) == 1


def test_of_a_long_record_evenly_spaced_rows_are_kept(file, page, monkeypatch):
    monkeypatch.setattr(reading, "MOST_ROWS", 8)
    for step in range(1, 101):
        append(file, lines([step]))
        shown = page.look()
        assert len(shown) <= 9
    assert shown[0] == 1
    assert len({after - before for before, after in pairwise(shown)}) == 1
    # The last row is told too, kept or not.
    tail = page.record.since(0).get("tail")
    assert (tail or page.rows[-1])[0] == 100


def test_a_look_ends_in_time_and_the_next_goes_on(file, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_ROW", 1000)
    append(file, lines(range(100)))
    record = Record(file, evaluation, count(1))
    looks = 1
    while record.look(until=0.0):
        looks += 1
    assert looks > 5
    assert [numbers[0] for numbers in record.since(0)["rows"]] == list(range(100))


def test_the_end_of_a_record(file):
    assert last_rows(file, "evaluations") == ([], None)
    append(file, lines(range(2000)) + b'{"step": 5')
    rows, note = last_rows(file, "evaluations")
    assert ([each["step"] for each in rows], note) == ([1998, 1999], None)
    append(file, b"\n")
    rows, note = last_rows(file, "evaluations")
    assert (rows, note) == ([], "evaluations.jsonl: its last rows are damaged")


def test_who_got_a_policy_from_whom():
    assert events({"step": 5, "copies": [[2, 0], [2, 1]]}) == [[5, "copy", 2, 0], [5, "copy", 2, 1]]
    assert events({"step": 5, "best": 1, "copied_to": [0]}) == [[5, "copy", 1, 0]]
    assert events({"step": 5, "replaced": [3], "source": 1}) == [[5, "replaced", 1, 3]]
    assert events({"step": 5, "replaced": [3], "elites": [0]}) == [[5, "child", None, 3]]


@pytest.mark.parametrize(
    "told",
    [5, "ab", [5.5], [[1]], [[1, 2, 3]], [["x", "y"]], [[-1, 10**30]], {"a": 1}, [[None] * 2]],
)
def test_events_that_make_no_sense(told):
    assert events({"step": 5, "copies": told, "copied_to": told, "replaced": told}) == []


def test_numbers_of_a_review_and_of_metrics():
    told = {"step": 9, "best": 1, "beta": 0.5, "spread": 2.0, "change": 0.25}
    assert review(told, rho=2.0, d_min=0.1)[0] == [9, 1, 0.5, 2, 0.5, 0.25]
    assert review({"step": 9, "best": 1}, None, None)[0] == [9, 1, None, None, None, None]
    assert review({"step": 9, "replaced": [0], "source": 1}, None, None)[0] is None
    told = {"step": 9, "seconds": 1.5, "recent_returns": [1.0, None]}
    assert measured(told)[0] == [9, 1.5, [1, None]]
    assert measured({"step": 9, "seconds": "x"})[0] is None
