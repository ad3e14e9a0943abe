"""Evaluations: noiseless returns that depend on seed and step alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import p3s
from p3s.envs import Adapter, make_env
from p3s.errors import UserError
from p3s.evaluation import Evaluator
from tests.helpers import small_training


class TestEvaluation:
    def test_returns_depend_on_policy_step_and_episode_only(self):
        training = small_training("Pendulum-v1", num_learners=2, learners_start="independent")
        training.run(100)
        policies = training.scheme.champions(training.crew.updater.state)
        whole = training.evaluations.evaluator.play(policies, 3, step=5)
        fresh = Evaluator(lambda: make_env("Pendulum-v1"), training.config.algorithm, seed=0)
        alone = fresh.play(jax.tree.map(lambda leaf: leaf[1:], policies), 2, step=5)
        np.testing.assert_allclose(alone[0], whole[1, :2], rtol=1e-5)
        later = fresh.play(policies, 3, step=6)
        assert not np.isclose(later, whole).any()

    @pytest.mark.parametrize(
        ("scheme", "fields"),
        [("p3s", {"num_learners": 4}), ("p3s", {"num_learners": 7}), ("distributed", {})],
    )
    def test_start_states_are_those_of_a_single_learner(self, scheme, fields, monkeypatch):
        seeds: dict[str, list[int | None]] = {}

        def starts(name: str, **about: object) -> list[int | None]:
            training = small_training("Pendulum-v1", scheme=name, **about)
            training.run(84)
            seen: list[int | None] = []
            reset = Adapter.reset

            def noted(env: Adapter, seed: int | None = None):
                seen.append(seed)
                return reset(env, seed=seed)

            with monkeypatch.context() as patched:
                patched.setattr(Adapter, "reset", noted)
                training.evaluate()
            training.close()
            return seen

        seeds = {"single": starts("single"), "others": starts(scheme, **fields)}
        episodes = len(seeds["single"]) // 2
        judged, fresh = seeds["single"][:episodes], seeds["single"][episodes:]
        assert len({*judged, *fresh}) == 2 * episodes
        count = 1 if scheme == "distributed" else fields["num_learners"]
        assert seeds["others"][: count * episodes] == judged * count
        left = seeds["others"][count * episodes :]
        assert left in (fresh, fresh * 2)

    def test_returns_are_those_of_a_plain_loop(self, population):
        env = make_env("Pendulum-v1")
        policy = population.policy
        returns = p3s.evaluate(policy, episodes=2, seed=7)
        from p3s import keys

        for episode in range(2):
            observation, _ = env.reset(seed=keys.integer(7, "evaluation", 0, episode))
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
                total, over = total + reward, terminated or truncated
            assert returns[episode] == pytest.approx(total, rel=1e-4)

    def test_does_not_disturb_training(self):
        quiet, judged = (small_training(evaluation_period=period) for period in (0, 60))
        for training in (quiet, judged):
            training.run(400)
        assert np.array_equal(*(one.experience.ring.rows[:400] for one in (quiet, judged)))

    def test_other_environment(self, population):
        with pytest.raises(UserError, match="the policy is for"):
            p3s.evaluate(population, "InvertedPendulum-v5")
