"""What commands import: jax, MuJoCo and plotting only where they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from p3s.algorithms import ALGORITHMS
from p3s.schemes import SCHEMES

HEAVY = {"jax", "optax", "mujoco", "matplotlib", "polars", "ray"}
RUN = """
import sys
from p3s.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code or 0, *sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("schemes", 0),
        ("algorithms", 0),
        ("presets", 0),
        ("study list", 0),
        ("study --help", 0),
        ("study run figur4", 2),
        ("trian Hopper-v5", 2),
        ("train Hopper-v5 --scheme p3z", 2),
        ("train Hopper-v5 --algorithm=tdd3", 2),
        ("watch nowhere --once", 2),
        ("report nowhere", 2),
        ("compare nowhere", 2),
        ("dashboard nowhere", 2),
        ("dashboard --help", 0),
    ],
)
def test_nothing_heavy(words, code):
    order = [sys.executable, "-c", RUN, *words.split()]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    ended, *imported = done.stdout.splitlines()[-1].split()
    # A command that gives up early imports little.
    assert int(ended) == code, done.stderr
    assert "p3s.cli" in imported
    assert not HEAVY.intersection(imported)


def test_environment_workers_need_no_jax():
    order = [sys.executable, "-c", "import sys, p3s.envs.worker; print(*sys.modules)"]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "p3s.envs.worker" in imported
    assert "jax" not in imported


@pytest.mark.parametrize("registry", [SCHEMES, ALGORITHMS])
def test_lists_say_what_the_classes_say(registry):
    for name, summary, note in registry.summaries():
        made = registry[name]
        assert made.name == name
        assert (made.__doc__ or "").split("\n")[0] == summary
        if registry is ALGORITHMS:
            assert note == made.actions


def test_training_says_first_that_it_is_loading():
    """Before jax is imported: here it cannot be."""
    without_jax = "import sys; sys.modules['jax'] = None\n" + RUN
    order = [sys.executable, "-c", without_jax, "train", "Pendulum-v1"]
    done = subprocess.run(order, capture_output=True, text=True)
    assert done.stdout == "loading jax ...\n"
    assert "import of jax halted" in done.stderr
