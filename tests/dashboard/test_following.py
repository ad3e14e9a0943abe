"""Which runs are found, what state they are in, and what a page is told of them."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from campaign.mutations import changed_bytes, changed_json
from p3s.dashboard import finding, following
from p3s.dashboard.following import Dashboard
from p3s.runs.records import RunFolder, to_json_line
from tests.synthetic_runs import write_run, write_study


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Looks are not spared."""
    for name in ("LOOK_EVERY", "SEARCH_EVERY", "SEARCH_SHARE"):
        monkeypatch.setattr(following, name, 0.0)


@pytest.fixture
def folder(tmp_path) -> Path:
    write_run(tmp_path / "run", "P3S-TD3", "Hopper-v1", 0, evaluations=3)
    return tmp_path / "run"


def summaries(dashboard: Dashboard) -> dict[str, dict]:
    """What is told of every run, by its folder."""
    answer = dashboard.answer(0, {}, {})
    return {run["folder"]: run for run in answer["runs"]}


def state(folder: Path) -> str:
    (run,) = summaries(Dashboard([folder])).values()
    return run["state"]


def test_runs_are_found_below_folders(tmp_path):
    write_study(tmp_path / "study", ("P3S-TD3", "TD3"), ("Hopper-v1",), seeds=2, evaluations=3)
    write_run(tmp_path / "a/b/run", "TD3", "Ant-v1", 5, evaluations=3)
    write_run(tmp_path / ".hidden/run", "TD3", "Ant-v1", 6, evaluations=3)
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    found = summaries(Dashboard([tmp_path]))
    assert sorted(found) == ["a/b/run", *sorted(f"study/runs/{m}-hopper-v1-{s}"
                             for m in ("p3s-td3", "td3") for s in (0, 1))]  # fmt: skip
    # A study's runs have its names.
    assert found["study/runs/p3s-td3-hopper-v1-1"]["method"] == "P3S-TD3"
    assert found["a/b/run"]["method"] == "single-td3"
    assert (found["a/b/run"]["env"], found["a/b/run"]["seed"]) == ("Ant-v5", 5)


def test_a_run_that_begins_and_one_that_is_removed(folder):
    dashboard = Dashboard([folder.parent])
    first = dashboard.answer(0, {}, {})
    assert dashboard.answer(first["now"], {}, {}) is None
    write_run(folder.parent / "new", "TD3", "Hopper-v1", 1, evaluations=3)
    second = dashboard.answer(first["now"], {}, {})
    assert [run["folder"] for run in second["runs"]] == ["new"]
    assert len(second["all"]) == 2
    (folder / "config.json").unlink()
    third = dashboard.answer(second["now"], {}, {})
    assert third["all"] == [second["runs"][0]["id"]]


def test_searches_have_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(finding, "MOST_RUNS", 2)
    deep = tmp_path
    for index in range(finding.DEEPEST + 2):
        deep = deep / "d"
        write_run(tmp_path / f"run{index}", "TD3", "Hopper-v1", index, evaluations=2)
    write_run(deep / "run", "TD3", "Hopper-v1", 99, evaluations=2)
    answer = Dashboard([tmp_path]).answer(0, {}, {})
    assert len(answer["all"]) == 2
    assert answer["notes"] == ["Only the first 2 of 10 runs are followed."]
    monkeypatch.setattr(finding, "MOST_ENTRIES", 4)
    notes = Dashboard([tmp_path]).answer(0, {}, {})["notes"]
    assert "Only the first 4 files were looked at for runs." in notes


def test_states(folder):
    assert state(folder) == "complete"
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**record, "steps": 10**6}))
    assert state(folder) == "stopped"
    owner = RunFolder(folder)
    owner.claim()
    assert state(folder) == "running"
    owner.close()
    assert state(folder) == "stopped"
    (folder / ".lock").write_text("what a killed process leaves")
    assert state(folder) == "stopped"
    (folder / "traceback.txt").write_text("…")
    assert state(folder) == "failed"


def test_a_look_leaves_no_trace(folder):
    (folder / ".lock").write_text("what a killed process leaves")
    before = {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")}
    dashboard = Dashboard([folder.parent])
    number = dashboard.answer(0, {}, {})["all"][0]
    dashboard.answer(0, {number: 0}, {})
    assert {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")} == before
    # Nor is it in the way of a process that takes the run.
    RunFolder(folder).claim()


def test_failures_and_waiting_runs_of_a_study(own_study):
    cells = json.loads((own_study / "cells.json").read_text())
    for name in ("failing", "waiting"):
        cells["cells"].append({"id": name, "run": f"runs/{name}", "method": "TD3",
                               "env": "Ant-v1", "seed": 9, "paper": None})  # fmt: skip
    (own_study / "cells.json").write_text(json.dumps(cells))
    write_run(own_study / "runs/failing", "TD3", "Ant-v1", 9, evaluations=3)
    record = json.loads((own_study / "runs/failing/config.json").read_text())
    record["steps"] = 10**6
    (own_study / "runs/failing/config.json").write_text(json.dumps(record))
    failure = {"error": "ValueError: the battery\x1b is empty\nmore"}
    (own_study / "failures/failing.json").write_text(json.dumps(failure))
    dashboard = Dashboard([own_study])
    run = summaries(dashboard)["runs/failing"]
    assert (run["state"], run["notes"]) == ("failed", ["ValueError: the battery� is empty"])
    assert dashboard.answer(0, {}, {})["notes"] == ["Study study: 1 of 22 runs has not started."]


def test_how_fast_and_how_long(folder):
    rows = [{"step": step, "seconds": seconds, "steps_per_second": 1.0, "recent_returns": [1.0]}
            for step, seconds in ((1000, 10.0), (3000, 14.0))]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(map(to_json_line, rows)))
    owner = RunFolder(folder)
    owner.claim()
    (run,) = summaries(Dashboard([folder])).values()
    assert (run["state"], run["rate"], run["notes"]) == ("running", 500, [])
    long_ago = time.time() - 3600
    for stream in ("metrics", "evaluations", "lineage"):
        os.utime(folder / f"{stream}.jsonl", (long_ago, long_ago))
    (run,) = summaries(Dashboard([folder])).values()
    assert run["notes"] == ["It is running, but has written no row for more than ten minutes."]
    owner.close()


def test_rows_only_of_runs_that_are_asked_for(folder):
    dashboard = Dashboard([folder])
    first = dashboard.answer(0, {}, {})
    assert first["rows"] == {}
    (number,) = first["all"]
    curve = dashboard.answer(first["now"], {}, {number: 0})
    assert curve["rows"][number].keys() == {"evaluations"}
    full = dashboard.answer(first["now"], {number: 0}, {})
    assert full["rows"][number].keys() == {"evaluations", "lineage", "metrics"}
    assert len(full["rows"][number]["lineage"]["rows"]) == 11
    assert dashboard.answer(full["now"], {number: full["now"]}, {}) is None
    assert dashboard.answer(full["now"], {999: 0}, {}) is None


def test_a_resumed_run_loses_the_rows_that_were_cut(folder):
    dashboard = Dashboard([folder])
    (number,) = dashboard.answer(0, {}, {})["all"]
    before = dashboard.answer(0, {number: 0}, {})
    rows = (folder / "evaluations.jsonl").read_bytes().splitlines(keepends=True)
    os.truncate(folder / "evaluations.jsonl", len(rows[0]))
    after = dashboard.answer(before["now"], {number: before["now"]}, {})
    told = after["rows"][number]
    assert told.keys() == {"evaluations"}
    assert told["evaluations"]["anew"]
    assert [row[0] for row in told["evaluations"]["rows"]] == [4000]


def test_runs_that_differ_in_a_setting_are_told_apart(tmp_path):
    for name, rho in (("a", 0.5), ("b", 1.0)):
        write_run(tmp_path / name, "P3S-TD3", "Hopper-v1", 0, evaluations=2, rho=rho)
    found = summaries(Dashboard([tmp_path]))
    assert found["a"]["method"] == "p3s-td3, rho 0.5"


def test_films(folder):
    (folder / "videos").mkdir()
    for name in ("step-900.mp4", "step-1000.mp4", "step-2000.txt", "other.mp4"):
        (folder / "videos" / name).write_bytes(b"film")
    (folder / "videos/step-3000.mp4").symlink_to("/etc/passwd")
    (run,) = summaries(Dashboard([folder])).values()
    assert run["film"] == "step-1000.mp4"


class TestStrangers:
    """Folders of someone else."""

    def told(self, folder: Path) -> dict:
        """All that a page can be told of a folder; it has to be JSON."""
        dashboard = Dashboard([folder])
        first = dashboard.answer(0, {}, {})
        told = dashboard.answer(0, dict.fromkeys(first["all"], 0), {})
        json.dumps(told, allow_nan=False)
        return told

    @pytest.mark.parametrize(
        "content",
        ["", "null", "[]", "[" * 100_000, "{}", '{"seed": 1e999}', '{"a": "\\ud800"}', "\x00"],
    )
    @pytest.mark.parametrize("name", ["config.json", "cells.json"])
    def test_a_file_that_makes_no_sense_is_named(self, own_study, name, content):
        path = own_study / ("runs/td3-ant-v1-0" if name == "config.json" else "") / name
        path.write_text(content)
        told = self.told(own_study)
        assert len(told["all"]) == (19 if name == "config.json" else 20)
        assert any(name in note for note in told["notes"])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("seed", 10**30), ("steps", -1), ("steps", 10**30), ("scheme_fields", []),
            ("environment", {"id": 5, "kwargs": {}, "delay": None}), ("versions", {"a": {}}),
            ("scheme_fields", {"rho": "x", "d_min": 10**400}),
        ],
    )  # fmt: skip
    def test_values_that_make_no_sense(self, folder, key, value):
        record = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**record, key: value}))
        told = self.told(folder)
        assert told["all"] == []
        assert told["notes"][0].startswith("Left out: ")

    @pytest.mark.parametrize("depth", [60, 300, 700, 900, 960, 980, 990])
    @pytest.mark.parametrize("where", ["config.json", "metrics.jsonl"])
    def test_deep_nesting(self, tmp_path, depth, where):
        for index in range(2):
            write_run(tmp_path / str(index), "P3S-TD3", "Hopper-v1", 0, evaluations=3)
            file, nested = tmp_path / str(index) / where, "[" * depth + str(index) + "]" * depth
            if where == "config.json":
                record = json.loads(file.read_text())
                record["scheme_fields"]["deep"] = "NESTED"
                text = json.dumps(record).replace('"NESTED"', nested)
            else:
                text = f'{{"step": 1, "deep": {nested}, "crc32": 1}}\n'
            file.write_text(text)
        told = self.told(tmp_path)
        if where == "config.json":
            assert told["all"] == []
        else:
            assert all(run["notes"] for run in told["runs"])

    def test_names_are_short_and_do_not_steer(self, folder):
        record = json.loads((folder / "config.json").read_text())
        record["environment"]["id"] = "\x1b]0;owned\x07" + "x" * 10_000
        (folder / "config.json").write_text(json.dumps(record))
        (run,) = self.told(folder)["runs"]
        assert "\x1b" not in run["env"]
        assert len(run["env"]) == 200

    def test_huge_numbers(self, folder):
        rows = [{"step": step, "updates": 1, "learner_returns": [[1e299, -1e299, 1e299]],
                 "score": 1e299, "mean": 10**299, "seconds": 1e299}
                for step in (1, 2**53 - 1)]  # fmt: skip
        (folder / "evaluations.jsonl").write_text("".join(map(to_json_line, rows)))
        lineage = {"step": 1, "best": 10**30 % 2**52, "beta": 1e299, "spread": 1e299,
                   "change": 1e299, "copies": [[10**40, 0]]}  # fmt: skip
        (folder / "lineage.jsonl").write_text(to_json_line(lineage))
        told = self.told(folder)
        (rows,) = told["rows"].values()
        assert rows["evaluations"]["rows"][0][3] == 1e299

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", ".lock", "videos"])
    @pytest.mark.parametrize("kind", ["pipe", "device", "elsewhere"])
    def test_pipes_devices_and_links(self, folder, name, kind):
        (folder / name).unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(folder / name)
        else:
            (folder / name).symlink_to("/dev/zero" if kind == "device" else "/etc")
        self.told(folder)

    def test_cells_elsewhere(self, own_study):
        cells = json.loads((own_study / "cells.json").read_text())
        cells["cells"][0]["run"] = "../../../etc"
        (own_study / "cells.json").write_text(json.dumps(cells))
        assert any("cells.json is damaged" in note for note in self.told(own_study)["notes"])

    def test_a_configuration_larger_than_any(self, folder, monkeypatch):
        monkeypatch.setattr(finding, "MOST_BYTES", 1000)
        assert "larger than" in self.told(folder)["notes"][0]

    @pytest.mark.parametrize(
        "name",
        ["config.json", "evaluations.jsonl", "lineage.jsonl", "metrics.jsonl", "cells.json"],
    )
    def test_changed_values_and_bytes(self, tmp_path, name):
        study = write_study(tmp_path / "study", ("P3S-TD3",), ("Ant-v1",), seeds=1, evaluations=3)
        run = study / "runs/p3s-td3-ant-v1-0"
        row = {
            "step": 4000,
            "seconds": 1.0,
            "steps_per_second": 9.0,
            "recent_returns": [1.0, None],
            "learners": {"value_loss": [1.0]},
            "shards": [{"steps_per_second": 1, "waiting": 0}],
        }
        (run / "metrics.jsonl").write_text(to_json_line(row))
        with (run / "lineage.jsonl").open("a") as file:
            file.write(json.dumps({"step": 9000, "best": 1, "copies": [[1, 0]], "copied_to": [2]}))
            file.write("\n" + json.dumps({"step": 9000, "replaced": [0], "source": 1}) + "\n")
        file = (study if name == "cells.json" else run) / name
        before = file.read_bytes()
        for seed in range(25):
            rng = random.Random(seed)
            lines = [before] if name.endswith(".json") else before.splitlines()
            if seed % 5 == 0:
                changed = changed_bytes(before, rng)
            else:
                values = [json.loads(line) for line in lines]
                place = rng.randrange(len(values))
                values[place].pop("crc32", None)
                values[place] = changed_json(values[place], rng)
                changed = "".join(json.dumps(value) + "\n" for value in values).encode()
            file.write_bytes(changed)
            self.told(study)
