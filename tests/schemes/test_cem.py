"""CEM: the chief's rules on numbers worked by hand and fixed draws."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes import CEM
from p3s.schemes.search_distribution import draw_policies, elite_weights, fit
from p3s.types import EnvSpec, Transition
from tests.helpers import problem_of, small_training

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)


def batches(count: int) -> Transition:
    draw = np.random.default_rng(0)
    shapes = [(count, 7, 2), (count, 7, 1), (count, 7), (count, 7), (count, 7, 2)]
    return Transition(*(jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes))


def started(scheme):
    return jax.jit(scheme.init, static_argnums=1)(jax.random.key(0), SPEC)


def equal(one, other) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


class TestCEMDistribution:
    def test_weights(self):
        """log(6/1), log(6/2), log(6/3) ... over their sum, which is log(6^5 / 5!)."""
        weights = elite_weights("log", 5)
        expected = np.array([1.791759, 1.098612, 0.693147, 0.405465, 0.182322]) / 4.171306
        np.testing.assert_allclose(weights, expected, rtol=1e-5)
        assert elite_weights("equal", 4).tolist() == [0.25] * 4

    def test_plain_mean_and_variance(self):
        elites = {"w": jnp.array([[1.0, 0.0], [3.0, 4.0]])}
        old = {"w": jnp.array([9.0, 9.0])}
        mean, variance = fit(old, elites, elite_weights("equal", 2), "plain", jnp.float32(0.5))
        assert mean["w"].tolist() == [2.0, 2.0]
        assert variance["w"].tolist() == [1.5, 4.5]

    def test_mean_and_variance_of_the_code(self):
        """Weights log 3 and log 1.5 over log 4.5; squares about the old mean, over 2 elites."""
        elites = {"w": jnp.array([[1.0], [3.0]])}
        weights = elite_weights("log", 2)
        first = np.log(3) / np.log(4.5)
        mean, variance = fit({"w": jnp.array([2.5])}, elites, weights, "cem_rl", jnp.float32(0.1))
        assert float(mean["w"][0]) == pytest.approx(first + 3 * (1 - first), rel=1e-6)
        expected = (first * 1.5**2 + (1 - first) * 0.5**2) / 2 + 0.1
        assert float(variance["w"][0]) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("count", [4, 5])
    def test_mirrored_draws(self, count):
        mean, variance = {"w": jnp.full(3, 2.0)}, {"w": jnp.array([0.0, 1.0, 4.0])}
        drawn = np.asarray(draw_policies(jax.random.key(0), mean, variance, count, True)["w"]) - 2
        half = -(-count // 2)
        np.testing.assert_allclose(drawn[half:], -drawn[: count - half], rtol=1e-6)
        assert (drawn[:, 0] == 0).all()
        free = np.asarray(draw_policies(jax.random.key(0), mean, variance, 4000, False)["w"])
        np.testing.assert_allclose(free.std(axis=0), [0, 1, 2], atol=0.07)


class TestCEM:
    scheme = CEM(algorithm=TINY, num_learners=4)

    def test_review_takes_the_best_half(self):
        scheme = dataclasses.replace(
            self.scheme, damping=0.2, final_damping=0.1, damping_decay=0.5, selection="first"
        )
        before = started(scheme)
        returns = np.array([[1.0], [4.0], [3.0], [2.0]])
        after, review = scheme.review(
            before, returns, np.zeros((5, 2), np.float32), np.random.default_rng(0)
        )
        assert (review["best"], review["elites"], review["trained_elites"]) == (1, [1, 2], 1)
        elites = jax.tree.map(lambda leaf: leaf[np.array([1, 2])], scheme.policies(before))
        expected = jax.tree.map(lambda leaf: leaf.mean(axis=0), elites)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after.mean, expected)
        # The damping is decayed before it is added, also in the first round: 0.1 + 0.5 * 0.1.
        spread = jax.tree.map(lambda leaf: leaf.var(axis=0) + 0.15, elites)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after.variance, spread
        )
        assert review["damping"] == pytest.approx(0.15)
        champion = jax.tree.map(lambda leaf: leaf[0], scheme.champions(after))
        assert equal(champion, after.mean)

    def test_selected_policies_step_as_they_would_alone(self):
        """One vmapped program gives what one policy after another gives."""
        state = started(self.scheme)
        both = batches(2)
        together, metrics = jax.jit(self.scheme._policy_steps)(state, both, jax.random.key(5))
        assert metrics["policy_loss"].shape == (2,)
        for index in range(2):
            alone = dataclasses.replace(self.scheme, num_selected=1)
            own = state._replace(
                selected=jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], state.selected),
                optimizers=jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], state.optimizers),
            )
            one, _ = jax.jit(alone._policy_steps)(
                own,
                jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], both),
                jax.random.key(5),
            )
            for ours, theirs in zip(
                jax.tree.leaves(together.selected), jax.tree.leaves(one.selected), strict=True
            ):
                np.testing.assert_allclose(ours[index], theirs[0], rtol=1e-5, atol=1e-7)
        assert not equal(together.selected, state.selected)
        assert equal(together.critic.value, state.critic.value)
        assert equal(together.others, state.others)

    def test_value_targets_take_the_selected_policies_in_turn(self):
        state = started(self.scheme)
        batch = jax.tree.map(lambda leaf: leaf[0], batches(1))
        step = jax.jit(self.scheme._value_step)
        first, _ = step(state, batch, jax.random.key(1))
        swapped = state._replace(selected=jax.tree.map(lambda leaf: leaf[::-1], state.selected))
        other, _ = step(swapped, batch, jax.random.key(1))
        # Adam's first step has the same size whatever the gradient is, but its moments do not.
        assert not equal(first.critic.optimizers["value"], other.critic.optimizers["value"])
        again, _ = step(swapped._replace(turn=jnp.int32(1)), batch, jax.random.key(1))
        assert equal(first.critic.optimizers["value"], again.critic.optimizers["value"])
        assert not equal(first.critic.targets["value"], state.critic.targets["value"])
        assert equal(first.selected, state.selected)

    def test_values_first(self):
        scheme = dataclasses.replace(self.scheme, update_order="values_first")
        assert [scheme.with_policy(9, place, 6) for place in range(6)] == [False] * 3 + [True] * 3
        assert (scheme.num_batches(False), scheme.num_batches(True)) == (1, 2)
        state, learn = started(scheme), jax.jit(scheme.learn, static_argnums=3)
        after, _ = learn(state, batches(1), jax.random.key(1), False)
        assert equal(after.selected, state.selected)
        assert not equal(after.critic.value, state.critic.value)
        after, _ = learn(state, batches(2), jax.random.key(1), True)
        assert not equal(after.selected, state.selected)
        assert equal(after.critic.value, state.critic.value)

    def test_every_transition_is_stored_and_updates_follow_the_round(self):
        training = small_training(scheme="cem", num_learners=4, initial_steps=0)
        training.run(100)
        assert training.experience.ring.num_added == 100
        done = training.counters.updates
        assert 0 < done < 100
        assert training.counters.total_updates == 2 * done

    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"num_elites": 11}, "num_elites must be at most the population, 10, not 11"),
         ({"num_selected": 0}, "num_selected must be at least 1"),
         ({"damping": -1.0}, "damping must be at least 0"),
         ({"algorithm": "dqn"}, "dqn has no policy of its own")],
    )  # fmt: skip
    def test_nonsense(self, fields, message):
        assert message in problem_of(resolve("Pendulum-v1", "cem", **fields).scheme)
