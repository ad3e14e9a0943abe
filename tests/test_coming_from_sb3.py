"""The page for those who come from Stable-Baselines3: every block of ours runs, on tiny budgets."""

from __future__ import annotations

import dataclasses
import re

import pytest

from p3s.config.run import resolve_spec
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "coming-from-sb3.md").read_text()
TASKS = re.split(r"^## \d+\. ", PAGE, flags=re.M)[1:]
TINY = {"evaluation_episodes": 1}
"""What a block does not say itself."""


def block(task: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", task, flags=re.M | re.S)
    return found


def test_there_are_twenty_with_both_sides():
    assert len(TASKS) == 20
    for task in TASKS:
        assert block(task, "py")
        assert block(task, "python")


@pytest.mark.filterwarnings("ignore:.*Box bound precision")
def test_our_side_runs_in_one_go(tmp_path, monkeypatch, capsys):
    def tiny(spec, check=True):
        return resolve_spec(dataclasses.replace(spec, fields={**TINY, **spec.fields}), check)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("p3s.population.resolve_spec", tiny)
    names: dict[str, object] = {}
    for task in TASKS:
        title = task.partition("\n")[0]
        # Before the first update: what compiling it would show is tested elsewhere.
        code = re.sub(r"learn\(\d+_000", "learn(200", block(task, "python"))
        exec(compile(code, title, "exec"), names)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"best", "x", "sac"}
    assert (tmp_path / "runs" / "sac" / "csv" / "metrics.csv").exists()
    assert "step 200/200" in capsys.readouterr().out
