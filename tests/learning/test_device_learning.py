"""Trainings on a device learn: Gymnasium's functional environments, and one of Brax's."""

from __future__ import annotations

from functools import partial

import pytest

from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.learning.device_crew import DeviceCrew
from p3s.train import Training

pytest.importorskip("flax")


def best_score(env: str, algorithm: str, steps: int, **fields) -> float:
    """The best mean return of a champion at the evaluations of a run."""
    about = {"steps": steps, "evaluation_period": steps // 4, "evaluation_episodes": 10}
    config = resolve(env, "p3s", algorithm, **{**about, **fields})
    training = Training(config, partial(make_env, config.env))
    assert isinstance(training.crew, DeviceCrew)
    training.run(steps)
    training.close()
    return max(row["champion_return"] for row in training.evaluated)


@pytest.mark.slow
class TestLearning:
    @pytest.mark.parametrize("algorithm", ["td3", "crossq"])
    def test_pendulum(self, algorithm: str):
        fields = {} if algorithm == "td3" else {"hidden_sizes": (64, 64), "initial_steps": 250}
        assert best_score("func:phys2d/Pendulum-v0", algorithm, 20_000, **fields) > -250

    def test_cart_pole(self):
        assert best_score("func:phys2d/CartPole-v1", "dqn", 50_000) > 400

    @pytest.mark.timeout(900)
    def test_inverted_pendulum_of_brax(self):
        """It pays a step upright, up to 1000; at random it falls within ten or twenty."""
        pytest.importorskip("brax")
        fields = {"hidden_sizes": (64, 64), "evaluation_episodes": 3}
        assert best_score("brax:inverted_pendulum", "td3", 30_000, **fields) > 500
