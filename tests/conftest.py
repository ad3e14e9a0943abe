"""Shared by all tests: one jax set-up, and small fast configurations of the real thing."""

from __future__ import annotations

import os

import jax
import pytest

from p3s.config import Config, resolve
from p3s.envs import make_env
from p3s.learning import devices
from p3s.learning.program import compiled
from p3s.networks import Network, register_network
from p3s.schemes import SCHEMES, scheme_name
from p3s.schemes.base import EpisodeScheme
from p3s.train import Training

devices.prepare()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_configure(config: pytest.Config) -> None:
    """Most of the fast tests' time is compilation, for programs that then run a second or less."""
    if config.getoption("markexpr") == "not slow":
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@register_network("test_linear")
class Linear(Network):
    """One matrix, without a bias or hidden layers."""

    def init(self, key, input_sizes, output_size):
        return {"matrix": jax.random.normal(key, (sum(input_sizes), output_size)) / 4}

    def apply(self, params, inputs):
        return inputs @ params["matrix"]


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs take memory maps, of which a process has only so many."""
    yield
    compiled.cache_clear()
    jax.clear_caches()


SMALL = {
    "hidden_sizes": (16,),
    "batch_size": 8,
    "initial_steps": 20,
    "review_period": 25,
    "buffer_size": 1000,
    "evaluation_period": 200,
    "evaluation_episodes": 2,
    "log_period": 100,
}
"""Fields that make a run take a second and still do everything that a run does."""


def small_config(env: str = "InvertedPendulum-v5", scheme: str = "p3s", **fields) -> Config:
    small = dict(SMALL)
    if issubclass(SCHEMES[scheme_name(scheme)], EpisodeScheme):
        small = {**small, "num_learners": 4}
        del small["review_period"]
    return resolve(env, scheme, **{**small, **fields})


def small_training(env: str = "InvertedPendulum-v5", **fields) -> Training:
    config = small_config(env, **fields)
    return Training(config, lambda: make_env(config.env))


@pytest.fixture
def run_arguments() -> list[str]:
    """The same small run on the command line."""
    return [
        "--hidden-sizes", "16", "--batch-size", "8", "--initial-steps", "20",
        "--review-period", "25", "--buffer-size", "1000", "--evaluation-period", "200",
        "--evaluation-episodes", "2", "--log-period", "100", "--checkpoint-period", "150",
    ]  # fmt: skip
