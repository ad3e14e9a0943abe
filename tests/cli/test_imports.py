"""What commands import: jax, MuJoCo and plotting only where they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from p3s.algorithms import ALGORITHMS
from p3s.cli import main
from p3s.schemes import SCHEMES

HEAVY = {"jax", "optax", "mujoco", "matplotlib", "polars", "ray"}
RUN = """
import sys
from p3s.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules)
"""


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "schemes",
        "algorithms",
        "presets",
        "study list",
        "study --help",
        "study run figur4",
        "trian Hopper-v5",
        "train Hopper-v5 --scheme p3z",
        "train Hopper-v5 --algorithm=tdd3",
        "watch nowhere --once",
        "report nowhere",
        "compare nowhere",
    ],
)
def test_nothing_heavy(words):
    order = [sys.executable, "-c", RUN, *words.split()]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert "p3s.cli" in imported
    assert not imported & HEAVY


def test_environment_workers_need_no_jax():
    order = [sys.executable, "-c", "import sys, p3s.envs.worker; print(*sys.modules)"]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    assert "jax" not in done.stdout.split()


@pytest.mark.parametrize("registry", [SCHEMES, ALGORITHMS])
def test_lists_say_what_the_classes_say(registry):
    for name, summary, note in registry.summaries():
        made = registry[name]
        assert made.name == name
        assert (made.__doc__ or "").split("\n")[0] == summary
        assert note == getattr(made, "actions", note)


def test_training_says_first_that_it_is_loading(capsys):
    with pytest.raises(SystemExit):
        main(["train", "Pendulum-v1", "--steps", "-1"])
    assert capsys.readouterr().out.startswith("loading jax ...\n")
