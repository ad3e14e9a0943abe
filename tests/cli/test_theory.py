"""`p3s theory`: its tables, its pictures, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from p3s.cli.theory import Options as Theory
from p3s.cli.theory import run as run_theory
from p3s.errors import UserError
from p3s.theory.lemmas import STATEMENTS
from tests.helpers import ROOT

SMALL: dict[str, Any] = {"num_mdps": 600, "num_states": 2, "num_actions": 2}


def test_tables_name_every_statement_and_find_none_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run_theory(Theory(**SMALL, num_runs=0))
    lines = capsys.readouterr().out.splitlines()
    for statement in STATEMENTS:
        rows = [line.split("│") for line in lines if statement.claim in line]
        row = next(row for row in rows if row[1].strip() == statement.name)
        applied, broken = int(row[4]), int(row[5])
        assert applied > 0
        assert broken == 0
    assert any("checked in" in line for line in lines)


def test_pictures_are_small_and_shown_in_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    options = Theory(**SMALL, num_runs=3, num_periods=4, out=tmp_path / "pictures")
    run_theory(options)
    assert "trap grid, sampled" in capsys.readouterr().out
    paths = sorted((tmp_path / "pictures").iterdir())
    names = ["assumptions", "beta", "gap", "radius", "tabular"]
    assert [path.name for path in paths] == [f"theory-{name}.svg" for name in names]
    for path in paths:
        assert path.read_text().startswith("<?xml")
        assert path.stat().st_size < 150_000
    # The documentation shows the same pictures, drawn by the same command.
    shown = (ROOT / "docs" / "theory.md").read_text()
    for path in paths:
        assert f"images/{path.name}" in shown
        assert (ROOT / "docs" / "images" / path.name).exists()


def test_no_matplotlib_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'p3s\[study\]'"):
        run_theory(Theory(**SMALL, num_runs=2, num_periods=2, out=tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Theory(num_mdps=0), "num_mdps must be at least 1"),
        (Theory(num_actions=1), "num_actions must be at least 2"),
        (Theory(inertia=0.0), "inertia must be above 0"),
        (Theory(num_runs=0, out=Path("anywhere")), "num_runs"),
    ],
)
def test_nonsense_is_refused(options: Theory, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_theory(options)
