"""PPO: advantages and the clip by hand, the loss against float64 numpy, scaled rewards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms.on_policy import advantages
from p3s.algorithms.ppo import (
    PPO,
    ReturnMoments,
    Samples,
    clipped_policy_loss,
    clipped_value_loss,
    scale_rewards,
    total_loss,
)
from p3s.types import EnvSpec, Rollout
from tests.helpers import problem_of
from tests.helpers_losses import check_loss, floats, hand_worked, log_softmax, numpy_tanh_mlp

CONTINUOUS, DISCRETE = EnvSpec.flat(3, 2), EnvSpec.flat(3, 4, discrete=True)


def test_advantages_by_hand():
    steps, ended = hand_worked()
    found = advantages(steps, ended, floats(1, 1, 1, 1), floats(2, 9, 4, 2), 0.5, 0.5)
    # Differences 1 + ½·2 - 1 = 1; 2 - 1 = 1, as 9 lies behind the end; 3 + ½·4 - 1 = 4, as a
    # truncation looks ahead; 4 + ½·2 - 1 = 4. Only the first sees the one after it: 1 + ¼·1.
    assert found.tolist() == [1.25, 1.0, 4.0, 4.0]


def test_policy_clip_by_hand():
    for ratio, advantage, loss in (
        (1.5, 2.0, -2.4),  # no gain beyond 1.2
        (0.5, 2.0, -1.0),
        (1.5, -2.0, 3.0),  # a loss counts in full
        (0.5, -2.0, 1.6),  # no gain below 0.8
        (1.1, 2.0, -2.2),
    ):
        found = clipped_policy_loss(floats(ratio), floats(advantage), 0.2)
        assert float(found) == pytest.approx(loss, rel=1e-6)
        slope = jax.grad(lambda r, a=advantage: clipped_policy_loss(r, floats(a), 0.2))(
            floats(ratio)
        )
        gains = (ratio > 1.2 and advantage > 0) or (ratio < 0.8 and advantage < 0)
        assert float(slope[0]) == (0.0 if gains else -advantage)


def test_value_clip_by_hand():
    # From 1 to 2 is clipped to 1.2: errors 1 and 0.2 to a target of 1; 2 and 2.8 to one of 4.
    assert float(clipped_value_loss(floats(2), floats(1), floats(1), 0.2)) == pytest.approx(0.5)
    assert float(clipped_value_loss(floats(2), floats(1), floats(4), 0.2)) == pytest.approx(
        0.5 * 2.8**2
    )


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE])
def test_loss_against_numpy(spec):
    algorithm = PPO(hidden_sizes=(4,), entropy_weight=0.1, value_weight=0.7)
    learner = algorithm.init(jax.random.key(1), spec)
    draw = np.random.default_rng(0)
    seen = draw.normal(size=(7, 3)).astype(np.float32)
    action = draw.integers(0, 4, 7).astype(np.int32)
    if not spec.discrete:
        action = draw.normal(size=(7, 2)).astype(np.float32)
    old_log, old_value, advantage, target = draw.normal(size=(4, 7)).astype(np.float32)
    samples = Samples(seen, action, old_log - 2.5, old_value, advantage, target)

    def expected(params):
        policy, value = params
        outputs = numpy_tanh_mlp(policy["layers"], seen.astype(np.float64))
        if spec.discrete:
            log_all = log_softmax(outputs)
            log_p, entropy = log_all[range(7), action], -np.sum(np.exp(log_all) * log_all, axis=1)
        else:
            std = np.exp(policy["log_std"])
            density = np.exp(-0.5 * ((action - outputs) / std) ** 2) / (std * np.sqrt(2 * np.pi))
            log_p = np.log(density).sum(axis=1)
            entropy = 0.5 * np.log(2 * np.pi * np.e * std**2).sum()
        ratio = np.exp(log_p - samples.log_probability)
        gain = (advantage - advantage.mean(dtype=np.float64)) / advantage.std(dtype=np.float64)
        policy_loss = -np.minimum(gain * ratio, gain * np.clip(ratio, 0.8, 1.2)).mean()
        now = numpy_tanh_mlp(value, seen.astype(np.float64))[:, 0]
        near = old_value + np.clip(now - old_value, -0.2, 0.2)
        value_loss = 0.5 * np.maximum((now - target) ** 2, (near - target) ** 2).mean()
        return policy_loss - 0.1 * np.mean(entropy) + 0.7 * value_loss

    check_loss(
        lambda params: total_loss(params, samples, algorithm)[0],
        expected,
        (learner.policy, learner.value),
    )


def test_rewards_are_scaled_by_the_running_return():
    """Against moments of the list of discounted returns so far; the return restarts at an end."""
    rewards, ended = floats(1, -2, 40, 3, 0.5), floats(0, 1, 0, 0, 0)
    start = ReturnMoments(*np.zeros(4, np.float32))
    moments, scaled = scale_rewards(start, rewards, ended, 0.5)
    seen, running = [], 0.0
    for index in range(5):
        running = 0.5 * running + float(rewards[index])
        seen.append(running)
        std = np.std(seen) if index > 0 else 1.0
        expected = np.clip(rewards[index] / std, -10, 10)
        assert float(scaled[index]) == pytest.approx(expected, rel=1e-4)
        running *= 1 - ended[index]
    assert float(moments.std) == pytest.approx(np.std(seen), rel=1e-5)
    first, again = scale_rewards(start, rewards[:2], ended[:2], 0.5)
    parts, rest = scale_rewards(first, rewards[2:], ended[2:], 0.5)
    assert np.array_equal(jnp.concatenate([again, rest]), scaled)
    assert jax.tree.all(jax.tree.map(np.array_equal, parts, moments))


def test_first_minibatch_of_an_update_is_on_policy():
    """Densities and values are computed again exactly: before any step the ratio is 1."""
    algorithm = PPO(hidden_sizes=(4,), rollout_steps=4, minibatch_size=4, epochs=1)
    learner = algorithm.init(jax.random.key(0), EnvSpec.flat(1, 1))
    steps, ended = hand_worked()
    rollout = Rollout(steps, ended, np.ones(4, np.float32))
    _, metrics = jax.jit(algorithm.improve)(learner, rollout, jax.random.key(1))
    assert float(metrics["divergence"]) == 0
    assert float(metrics["clipped_share"]) == 0


def test_bad_values():
    for fields, message in (
        ({"rollout_steps": 100}, "multiple of minibatch_size, not 100 with 64"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"clip_range": 0.0}, "clip_range must be above 0"),
        ({"trace_decay": 1.5}, "trace_decay must be between 0 and 1"),
        ({"value_weight": -1.0}, "value_weight must be at least 0"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must be at least 1"),
    ):
        assert message in problem_of(PPO(**fields))
    assert problem_of(PPO()) == ""
