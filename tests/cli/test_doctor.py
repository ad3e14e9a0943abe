"""`p3s doctor`: a line for everything, and what is missing."""

from __future__ import annotations

from importlib import metadata

from p3s.cli import doctor
from tests.helpers import call


def test_a_line_for_everything(capsys):
    code, output, _ = call(capsys, "doctor")
    assert code == 0
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert lines["p3s"].split()[1] == metadata.version("p3s")
    assert "jax " in lines["packages"]
    assert "× cpu" in lines["devices"]
    for name in ("system", "machine", "settings", "cache", "renderer", "[mujoco]", "[export]"):
        assert name in lines


def test_what_is_missing_is_named_with_its_command(monkeypatch):
    known = {"onnx": None}
    real = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: known.get(name, real("numpy")))
    found = dict(doctor.findings())
    assert found["[export]"] == "missing onnx: pip install 'p3s[export]'"
    assert found["[tb]"] == "installed"
    assert "dev" not in doctor.extras()


def test_a_renderer_that_aborts_is_told(monkeypatch):
    monkeypatch.setattr(doctor, "RENDER", "import os; os.abort()")
    assert "cannot draw: exit code -6" in doctor._renderer()
