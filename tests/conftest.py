"""One jax set-up for all tests, and the fixtures of several rooms."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import p3s
from p3s.algorithms import ALGORITHMS
from p3s.learning import devices
from p3s.learning.program import compiled
from p3s.networks import NETWORKS
from p3s.schemes import SCHEMES
from tests.helpers import SMALL
from tests.helpers_browser import chromium
from tests.synthetic_runs import ENVS, METHODS, write_study

devices.prepare()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_configure(config: pytest.Config) -> None:
    """Compile without optimization: the programs of the fast tests run a second or less."""
    if config.getoption("markexpr") == "not slow":
        quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        os.environ.setdefault("XLA_FLAGS", quick)


@pytest.fixture(scope="session", autouse=True)
def own_key(tmp_path_factory):
    """Tests sign with a key of their own."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("configuration"))


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs take memory maps, of which a process has only a limited number."""
    yield
    compiled.cache_clear()
    jax.clear_caches()


@pytest.fixture
def turn_on_ray() -> Iterator[None]:
    """Tests that start Ray take turns, and leave no connection to each other.

    A cluster is a dozen processes, which Ray gives up if they do not start in time; and a process
    that is connected to one cluster stays so, whatever address it is given next.
    """
    with (Path(tempfile.gettempdir()) / f"p3s-tests-on-ray-{os.getuid()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


@pytest.fixture
def run_arguments() -> list[str]:
    """A small run on the command line."""
    return [
        "--preset", "paper", "--hidden-sizes", "16", "--batch-size", "8", "--initial-steps", "20",
        "--review-period", "25", "--buffer-size", "1000", "--evaluation-period", "200",
        "--evaluation-episodes", "2", "--metrics-period", "100", "--checkpoint-period", "150",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def population() -> p3s.Population:
    """A trained population; Pendulum has actions in [-2, 2]."""
    population = p3s.Population("Pendulum-v1", seed=1, **SMALL)
    return population.learn(900, progress_bar=False)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A study folder with made-up runs."""
    folder = tmp_path_factory.mktemp("studies") / "study"
    return write_study(folder, METHODS, ENVS, seeds=5, evaluations=12)


@pytest.fixture
def own_study(study, tmp_path) -> Path:
    """A copy of it, for tests that damage it."""
    return Path(shutil.copytree(study, tmp_path / "study"))


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """A real browser."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def as_it_was(monkeypatch):
    """What a test registers or imports is forgotten after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    kept = [(registry, dict(registry)) for registry in (ALGORITHMS, SCHEMES, NETWORKS)]
    yield
    for registry, before in kept:
        registry.clear()
        registry.update(before)
    for name in ("awac", "own_scheme", "residual"):
        sys.modules.pop(f"examples.{name}", None)
