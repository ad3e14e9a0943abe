"""ACKTR: returns and steps by hand, losses against float64 numpy, one update step by step."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import p3s
from p3s.algorithms import acktr
from p3s.algorithms.acktr import ACKTR
from p3s.algorithms.parts.squashed_gaussian import gaussian_kl
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.experience.normalization import identity_scaling
from p3s.policies.policy import Policy
from p3s.types import EnvSpec, Rollout, Transition
from tests.helpers import assert_same_bits, problem_of, small_training
from tests.helpers_losses import check_loss, floats, hand_worked, linear, numpy_tanh_mlp

SPEC = EnvSpec.flat(3, 2)
TINY = ACKTR(hidden_sizes=(4,))


def random_rollout(rows: int, padding: int = 0) -> Rollout:
    """Three episodes, the second of which is truncated."""
    draw = np.random.default_rng(0)
    ended, discount = np.zeros(rows, np.float32), np.ones(rows, np.float32)
    ended[[rows // 3, 2 * rows // 3, -1]] = 1
    discount[[rows // 3, -1]] = 0
    steps = Transition(
        draw.normal(size=(rows, 3)), draw.normal(size=(rows, 2)), draw.normal(size=rows),
        discount, draw.normal(size=(rows, 3)),
    )  # fmt: skip
    rollout = Rollout(steps, ended, np.ones(rows))
    return jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, padding)] + [(0, 0)] * (np.ndim(leaf) - 1)).astype(
            np.float32
        ),
        rollout,
    )


def test_step_in_episode():
    assert acktr.step_in_episode(floats(0, 0, 1, 1, 0, 1)).tolist() == [0, 1, 2, 0, 0, 1]


def test_returns_and_advantages_by_hand():
    """The trajectory of PPO's test, whose last step terminates; V is 6 everywhere."""
    steps, ended = hand_worked()
    steps, ended = steps._replace(discount=floats(1, 0, 1, 0)), floats(0, 1, 1, 1)
    made = ACKTR(hidden_sizes=(), discount_factor=0.5, trace_decay=0.5)
    learner = made.init(jax.random.key(0), EnvSpec.flat(1, 1))
    learner = learner._replace(value=linear(np.zeros((5, 1)), floats(6)))
    rollout = Rollout(steps, ended, np.ones(4, np.float32))
    advantage, inputs, returns = made.look_back(learner, rollout)
    # 1 + ½·2, 2; 3 + ½·6, as a truncation looks ahead; 4.
    assert returns.tolist() == [2.0, 2.0, 6.0, 4.0]
    # Differences 1 + 3 - 6, 2 - 6, 3 + 3 - 6, 4 - 6; the first sees a quarter of the second's.
    assert advantage.tolist() == [-3.0, -4.0, 0.0, -2.0]
    # observation (of width 1 here), mean, std, t / 10, 1
    np.testing.assert_allclose(inputs[1], [0, 0, 1, 0.1, 1], atol=1e-7)


def test_losses_against_numpy():
    learner, rollout = TINY.init(jax.random.key(1), SPEC), random_rollout(9)
    weights = np.full(9, 1 / 9, np.float32)
    steps = jax.tree.map(np.float64, rollout.steps)
    advantage = np.linspace(-1, 2, 9).astype(np.float32)

    def numpy_policy_loss(policy):
        mean, std = numpy_tanh_mlp(policy["layers"], steps.observation), np.exp(policy["log_std"])
        density = np.exp(-0.5 * ((steps.action - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        return -np.mean(advantage * np.log(density).sum(axis=1))

    check_loss(
        lambda policy: acktr.policy_loss(policy, rollout, advantage, weights),
        numpy_policy_loss,
        learner.policy,
    )
    inputs = acktr.value_inputs(learner.policy, rollout.steps.observation, jnp.arange(9))

    def numpy_value_loss(value):
        first, last = value.params
        hidden = np.float64(inputs) @ first["weight"] + first["bias"]
        hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
        values = (hidden @ last["weight"] + last["bias"])[:, 0]
        return np.mean((values - advantage) ** 2) / 2

    check_loss(
        lambda value: acktr.value_loss(value, inputs, advantage, weights),
        numpy_value_loss,
        learner.value,
    )


def test_slopes_of_the_log_std():
    learner, rollout = TINY.init(jax.random.key(1), SPEC), random_rollout(9)
    steps = rollout.steps
    slopes = jax.vmap(
        lambda seen, action: jax.grad(acktr.log_probability)(learner.policy, seen, action)
    )(steps.observation, steps.action)
    traces = acktr.policy_traces(learner.policy, steps.observation, steps.action)
    np.testing.assert_allclose(traces[-1].slopes, slopes["log_std"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        traces[-2].slopes, slopes["layers"].params[-1]["bias"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("divergence", "after"),
    [(0.0041, 0.02), (0.0039, 0.03), (0.0011, 0.03), (0.0009, 0.045)],
)
def test_step_size_follows_the_divergence(divergence, after):
    found = acktr.adapt_step(jnp.float32(0.03), jnp.float32(divergence), 0.002)
    assert float(found) == pytest.approx(after)
    assert float(acktr.adapt_step(jnp.float32(0.9), jnp.float32(0.0), 0.002)) == 1.0
    smallest = acktr.adapt_step(jnp.float32(1e-8), jnp.float32(1.0), 0.002)
    assert float(smallest) == pytest.approx(1e-8)


class TestImprove:
    made = dataclasses.replace(TINY, value_cold_iterations=0, value_learning_rate=0.1)
    learner = made.init(jax.random.key(1), SPEC)
    rollout = random_rollout(30)

    @pytest.fixture(scope="class")
    def improved(self):
        return jax.jit(self.made.improve)(self.learner, self.rollout, jax.random.key(2))

    def test_improves_both(self, improved):
        learner, metrics = improved
        assert float(metrics["value_loss_after"]) < float(metrics["value_loss"])
        advantage, _, _ = self.made.look_back(self.learner, self.rollout)
        scaled = (advantage - advantage.mean()) / advantage.std()
        weights = np.full(30, 1 / 30, np.float32)
        before, after = (
            float(acktr.policy_loss(one.policy, self.rollout, scaled, weights))
            for one in (self.learner, learner)
        )
        assert float(metrics["policy_loss"]) == pytest.approx(before, rel=1e-4)
        assert after < before

    def test_divergence_is_between_old_and_new(self, improved):
        learner, metrics = improved
        seen = self.rollout.steps.observation
        old, new = (acktr.policy_gaussian(one.policy, seen) for one in (self.learner, learner))
        assert float(metrics["divergence"]) == pytest.approx(
            float(gaussian_kl(old, new).mean()), rel=1e-3
        )
        assert float(metrics["divergence"]) > 0

    def test_rows_that_only_fill_up_change_nothing(self, improved):
        filled = random_rollout(30, padding=7)
        learner, _ = jax.jit(self.made.improve)(self.learner, filled, jax.random.key(2))
        # Noise of the value's Fisher depends on the number of rows; the policy has none.
        jax.tree.map(
            lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6),
            learner.policy, improved[0].policy,
        )  # fmt: skip


def test_collects_whole_episodes():
    assert not TINY.rollout_full(2500, True)
    assert not TINY.rollout_full(2600, False)
    assert TINY.rollout_full(2501, True)


def test_bad_values():
    for fields, message in (
        ({"target_kl": 0.0}, "target_kl must be above 0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"value_steps": 0}, "value_steps must be at least 1"),
        ({"discount_factor": 2.0}, "discount_factor must be between 0 and 1"),
    ):
        assert message in problem_of(ACKTR(**fields))
    assert problem_of(ACKTR()) == ""


class TestTwoObservations:
    """Policy and values see the latest observation and the one before it, everywhere."""

    fields = {"algorithm": "acktr", "rollout_steps": 40, "value_steps": 2, "evaluation_period": 0}  # noqa: RUF012

    @pytest.fixture(scope="class")
    def population(self):
        population = p3s.Population(
            "Pendulum-v1", scheme="rollout", hidden_sizes=(4,), **self.fields
        )
        return population.learn(450, progress_bar=False)

    def test_in_a_rollout(self):
        fields = {**self.fields, "rollout_steps": 1000}
        training = small_training(
            "InvertedPendulum-v5", scheme="rollout", normalize_observations=False, **fields
        )
        training.run(60)
        rows = jnp.stack(training.experience.snapshot()["rows"])
        steps, ended, _ = training.experience.unpack(training.spec, rows)
        training.close()
        seen, after = np.split(steps.observation, 2, axis=1), np.split(steps.next_observation, 2, 1)
        starts = np.flatnonzero(np.concatenate([[1.0], ended[:-1]]))
        assert len(starts) > 2
        np.testing.assert_array_equal(seen[1][starts], seen[0][starts])
        others = np.setdiff1d(np.arange(60), starts)
        np.testing.assert_array_equal(seen[1][others], seen[0][others - 1])
        np.testing.assert_array_equal(after[1], seen[0])

    def test_in_both_networks(self, population):
        learner = population.training.crew.updater.state.learners
        # Two of size 3; for the values also mean and std of one action, t / 10 and 1.
        assert learner.policy["layers"].params[0]["weight"].shape == (1, 6, 4)
        assert learner.value.params[0]["weight"].shape == (1, 10, 4)

    def test_in_predict(self, population):
        observation = np.array([1.0, 0.0, 0.5], np.float32)
        still, moving = (
            population.predict(np.concatenate([observation, before]))[0]
            for before in (observation, observation - 1)
        )
        assert still.shape == (1,)
        assert still != moving
        for asked in (population, population.policy):
            with pytest.raises(UserError) as caught:
                asked.predict(observation)
            assert str(caught.value) == (
                "an observation of shape [3] does not fit: this policy takes [6] or [batch, 6], "
                "the latest 2 observations side by side, newest first"
            )

    def test_in_files_and_evaluations(self, population, tmp_path):
        population.policy.save(tmp_path / "policy.safetensors")
        loaded = p3s.load(tmp_path / "policy.safetensors")
        assert loaded.make_env().env_spec == loaded.spec == EnvSpec.flat(6, 1)
        expected = p3s.evaluate(population, episodes=2)
        np.testing.assert_array_equal(p3s.evaluate(loaded, episodes=2), expected)
        for env in ("Pendulum-v1", lambda: make_env("Pendulum-v1").env):
            np.testing.assert_array_equal(p3s.evaluate(loaded, env, episodes=2), expected)

    @pytest.mark.slow
    def test_after_a_resume_in_mid_episode(self):
        first, again = (
            small_training("Pendulum-v1", scheme="rollout", **self.fields) for _ in range(2)
        )
        first.run(250)
        again.resume(first.snapshot())
        for training in (first, again):
            training.run(500)
            training.close()
        assert_same_bits(again, first)

    def test_a_policy_file_from_before_sees_one(self, tmp_path):
        spec = EnvSpec.flat(3, 1)
        about = {
            "action_low": [-2.0], "action_high": [2.0], "action_shape": [1],
            "environment": {"id": "Pendulum-v1"},
        }  # fmt: skip
        scaling = identity_scaling(spec)
        policy = Policy(TINY, TINY.init(jax.random.key(0), spec).policy, spec, about, scaling)
        policy.save(tmp_path / "policy.safetensors")
        assert p3s.evaluate(p3s.load(tmp_path / "policy.safetensors"), episodes=1).shape == (1,)
