"""RRD: the loss and its step by hand, what an update is fitted to, and learning a reward."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from p3s.experience.normalization import NoNormalizer, Scaling
from p3s.experience.replay import Replay
from p3s.experience.reward_network import (
    LEARNING_RATE,
    Fitted,
    LearnedCredit,
    decomposition_loss,
    fit,
    predict,
)
from p3s.experience.rows import fields, pack
from p3s.networks import MLP, Model
from p3s.types import EnvSpec, Transition

SPEC = EnvSpec.flat(1, 1)


def linear(*weights: float) -> Model:
    """r = w · (s, a, s - s') + b, one number each."""
    network = MLP(
        hidden_sizes=(), activation="relu", layer_norm=False, initialization="xavier_joint"
    )
    *own, bias = weights
    layer = {"weight": jnp.array(own, jnp.float32)[:, None], "bias": jnp.array([bias], jnp.float32)}
    return Model([layer], network, ((1,), (1,), (1,)))


def rows_of(*steps: tuple[float, float, float], spec: EnvSpec = SPEC) -> np.ndarray:
    """Rows of (s, a, s'), without a reward."""
    values = np.array(steps, np.float32)
    nothing = np.zeros(len(steps), np.float32)
    return pack(spec, Transition(values[:, :1], values[:, 1:2], nothing, nothing, values[:, 2:]))


class TestByHand:
    def test_the_loss_is_the_squared_error_of_the_mean(self):
        """Means (1 + 3)/2 = 2 and 5; credits 3 and 1: (1 + 16)/2. A left-over place weighs 0."""
        rewards = jnp.array([[1.0, 3.0, 7.0], [5.0, 9.0, 9.0]])
        weights = jnp.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
        assert decomposition_loss(rewards, weights, jnp.array([3.0, 1.0])) == 8.5

    def test_the_gradient_of_the_loss(self):
        """d/dr = 2 (mean - credit) w / bags: -1 · ½ and +4 · 1."""
        rewards = jnp.array([[1.0, 3.0], [5.0, 9.0]])
        weights = jnp.array([[0.5, 0.5], [1.0, 0.0]])
        gradient = jax.grad(decomposition_loss)(rewards, weights, jnp.array([3.0, 1.0]))
        assert gradient.tolist() == [[-0.5, -0.5], [4.0, 0.0]]

    def test_what_it_sees(self):
        """2 s + 3 a + 5 (s - s') + 7, of (1, 2, 4) and (0, 1, 1)."""
        found = predict(linear(2, 3, 5, 7), SPEC, rows_of((1, 2, 4), (0, 1, 1)), None)
        assert found.tolist() == [2 + 6 - 15 + 7, 3 - 5 + 7]

    def test_normalized_observations_are_seen_as_the_learners_see_them(self):
        """(s - 1)/2: of 1 and 4 it sees 0 and -1.5."""
        scaling = Scaling(np.ones(1, np.float32), np.full(1, 0.5, np.float32))
        found = predict(linear(2, 3, 5, 7), SPEC, rows_of((1, 2, 4)), scaling)
        assert found.tolist() == [6 - 7.5 + 7]

    def test_discrete_actions_and_masks(self):
        """A one-hot action; the mask at the end of an observation is not seen."""
        spec = EnvSpec.flat(3, 2, discrete=True)
        spec = EnvSpec(spec.observation, 2, discrete=True, masked=True)
        seen = np.array([[4, 1, 0]], np.float32)
        one = np.ones(1, np.float32)
        rows = pack(spec, Transition(seen, np.array([1]), one, one, seen))
        assert predict(linear(2, 10, 20, 0, 7), spec, rows, None).tolist() == [8 + 20 + 7]

    def test_a_step_is_adam_on_that_gradient(self):
        """r = 0 and credit 3: the gradient is -6 times the mean of (s, a, s - s', 1), which is
        (1, 0, -2, 1). Adam's first step is its step size against the sign."""
        model: Any = linear(0, 0, 0, 0)
        before = Fitted(model, optax.adam(LEARNING_RATE).init(model))
        rows = rows_of((2, 1, 4), (0, -1, 2))[None]
        weights, credits = np.full((1, 2), 0.5, np.float32), np.array([3.0], np.float32)
        after = fit(before, SPEC, rows, weights, credits, None)
        momentum = after.optimizer[0].mu.params[0]
        np.testing.assert_allclose(momentum["weight"][:, 0], [-0.6, 0, 1.2], rtol=1e-5)
        np.testing.assert_allclose(momentum["bias"], [-0.6], rtol=1e-5)
        moved = after.model.params[0]
        expected = [LEARNING_RATE, 0, -LEARNING_RATE]
        np.testing.assert_allclose(moved["weight"][:, 0], expected, rtol=1e-4)
        np.testing.assert_allclose(moved["bias"], [LEARNING_RATE], rtol=1e-4)


def make_replay(delay, capacity: int = 1000, num_steps: int = 1) -> tuple[Replay, LearnedCredit]:
    credit = LearnedCredit(capacity, delay, 0, SPEC, seed=0)
    return Replay(capacity, SPEC, 32, 0, NoNormalizer(), num_steps, bags=credit), credit


def play(replay: Replay, lengths: list[int], delay: int | None = None) -> None:
    """Episodes one after another, whose steps earn s = 0 or 1 and are paid late."""
    rng = np.random.default_rng(0)
    for length in lengths:
        saved = 0.0
        for index in range(length):
            seen = np.array([[rng.integers(0, 2)]], np.float32)
            saved, over = saved + float(seen[0, 0]), index == length - 1
            due = over or (delay is not None and (index + 1) % delay == 0)
            reward = np.array([saved if due else 0.0], np.float32)
            saved = 0.0 if due else saved
            replay.add(Transition(seen, 0 * seen, reward, np.ones(1), seen), [0], [0] * over)


class TestSamples:
    def test_long_episodes_give_64_different_steps(self):
        replay, credit = make_replay("end")
        play(replay, [100, 200])
        credit.advance(replay.ring.num_added, 0)
        places, weights, credits = credit.sample(update=1)
        assert places.shape == weights.shape == (4, 64)
        assert (weights == np.float32(1 / 64)).all()
        rewards = fields(replay.ring.rows, SPEC, replay._marks)["reward"]
        for bag, paid in zip(places, credits, strict=True):
            assert len(set(bag)) == 64
            whole = slice(0, 100) if bag[0] < 100 else slice(100, 300)
            assert (bag // 100 > 0).all() == (bag[0] >= 100)
            assert paid == pytest.approx(rewards[whole].mean())

    def test_short_episodes_count_as_a_whole(self):
        replay, credit = make_replay("end")
        play(replay, [3])
        credit.advance(replay.ring.num_added, 0)
        places, weights, _ = credit.sample(update=1)
        assert places[:, :3].tolist() == [[0, 1, 2]] * 4
        assert (weights[:, :3] == np.float32(1 / 3)).all()
        assert not weights[:, 3:].any()

    def test_bags_of_a_delay_are_whole(self):
        """Delay 20, an episode of 50: bags of 20, 20 and 10; 240 steps and fewer."""
        replay, credit = make_replay(20)
        play(replay, [50], delay=20)
        credit.advance(replay.ring.num_added, 0)
        rewards = fields(replay.ring.rows, SPEC, replay._marks)["reward"]
        bags = {0: (20, 19), 20: (20, 39), 40: (10, 49)}
        found = set()
        for update in range(5):
            places, weights, credits = credit.sample(update)
            assert places.shape == (12, 20)
            for bag, own, paid in zip(places, weights, credits, strict=True):
                length, last = bags[int(bag[0])]
                assert bag[:length].tolist() == list(range(bag[0], bag[0] + length))
                assert (own[:length] == np.float32(1 / length)).all()
                assert not own[length:].any()
                assert paid == np.float32(rewards[last] / length)
                found.add(int(bag[0]))
        assert found == {0, 20, 40}


@pytest.mark.parametrize("delay", ["end", 20])
def test_it_learns_who_earned_what_was_paid(delay):
    """A step earns its observation, 0 or 1; all is paid late."""
    replay, _ = make_replay(delay)
    play(replay, [30] * 30, None if delay == "end" else delay)
    for update in range(600):
        taken = replay.take(update, 1, num_pending=0)
    assert taken is not None
    batch = fields(taken.rows[0], SPEC)
    np.testing.assert_allclose(batch["reward"], batch["observation"][:, 0], atol=0.1)


def test_several_steps_are_paid_one_by_one():
    """The same rows in one replay with one step and one with three, and the same network."""
    (one, _), (three, _) = make_replay("end"), make_replay("end", num_steps=3)
    for replay in (one, three):
        play(replay, [5, 9])
    for update in range(30):
        single, several = (replay.take(update, 1, num_pending=0) for replay in (one, three))
    assert single is not None
    assert several is not None
    paid, chains = fields(single.rows, SPEC), fields(several.rows, SPEC, num_steps=3)
    np.testing.assert_allclose(chains["reward"][..., 0], paid["reward"], rtol=1e-5)
    assert (chains["reward"][chains["discount"][..., 2] > 0] != 0).all()


def test_another_seed_is_another_network():
    ours, theirs = (LearnedCredit(10, None, 0, SPEC, seed).snapshot() for seed in (0, 1))
    first = "reward_network/model/params/0/weight"
    assert not np.array_equal(ours[first], theirs[first])
