"""Every example runs, at a small budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from p3s.plugins.loading import import_module
from p3s.testing import check_algorithm, check_scheme

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = {"quickstart": 600, "own_environment": 600, "own_device_environment": 600,
         "own_scheme": 1200, "policy_without_jax": 600,
         "delayed_rewards": 1200, "study": 400, "camera_and_joints": 600,
         "grid": 600}  # fmt: skip
PACKAGES = {"grid": "minigrid"}
"""What an example needs besides."""
MODULES = ("awac", "residual")
"""Classes to import: test_plugins.py and test_networks.py train them."""


def test_none_is_left_out():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*STEPS, *MODULES}


@pytest.mark.usefixtures("as_it_was")
def test_the_algorithm_keeps_the_contract():
    check_algorithm("examples.awac:AWAC")


@pytest.mark.usefixtures("as_it_was")
def test_the_scheme_keeps_the_contract():
    check_scheme("examples.own_scheme:Observed")


@pytest.mark.slow
@pytest.mark.usefixtures("as_it_was")
def test_the_network_serves_an_algorithm_that_keeps_the_contract():
    import_module("examples.residual")
    check_algorithm("td3", network="residual", exploration_noise_kind="ornstein_uhlenbeck")


@pytest.mark.parametrize("name", STEPS)
def test_it_runs(name, tmp_path):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(STEPS[name])]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_the_notebook_runs_top_to_bottom(tmp_path):
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 6
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "STEPS": "1200"}
    command = [sys.executable, "-c", "\n".join(code)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mean return" in done.stdout
