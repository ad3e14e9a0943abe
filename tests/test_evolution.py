"""CEM and ERL: the chief's rules on hand-worked numbers and fixed draws."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config import resolve
from p3s.schemes import CEM, ERL
from p3s.schemes.cem import draw_policies, elite_weights, fit
from p3s.schemes.erl import cross_over, mutate, tournament
from p3s.types import EnvSpec, Transition

from .conftest import small_training

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec(2, 1)


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
        spread = jax.tree.map(lambda leaf: leaf.var(axis=0) + 0.2, elites)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after.variance, spread
        )
        assert review["damping"] == pytest.approx(0.1 + 0.5 * 0.1)
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
        assert not equal(
            first.critic.extra["value_optimizer"], other.critic.extra["value_optimizer"]
        )
        again, _ = step(swapped._replace(turn=jnp.int32(1)), batch, jax.random.key(1))
        assert equal(first.critic.extra["value_optimizer"], again.critic.extra["value_optimizer"])
        assert not equal(first.critic.extra["target_value"], state.critic.extra["target_value"])
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
        assert training.replay.num_added == 100
        done = training.updates
        assert 0 < done < 100
        assert training.total_updates == 2 * done

    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"num_elites": 11}, "num_elites must be at least 1 and at most the population, 10"),
         ({"num_selected": 0}, "num_selected must be at least 1"),
         ({"damping": -1.0}, "damping must be at least 0"),
         ({"algorithm": "dqn"}, "dqn has no policy of its own")],
    )  # fmt: skip
    def test_nonsense(self, fields, message):
        assert message in str(resolve("Pendulum-v1", "cem", **fields).scheme.problem())


class FixedDraws:
    """A generator whose draws were written down before."""

    def __init__(self, **draws):
        self.draws = draws

    def _next(self, name, size):
        value = self.draws[name].pop(0)
        assert np.shape(value) == (() if size is None else np.shape(np.empty(size)))
        return np.asarray(value)

    def integers(self, high, size=None):
        value = self._next("integers", size)
        assert (value < high).all()
        return value

    def random(self, size=None):
        return self._next("random", size)

    def standard_normal(self, size=None):
        return self._next("standard_normal", size)


class TestERL:
    def test_tournament_takes_the_best_ranked_entrant(self):
        ranking = np.array([3, 1, 0, 2])  # policy 3 is best
        draw = FixedDraws(integers=[[[2, 1, 3], [3, 3, 3], [0, 2, 1]]])
        assert tournament(ranking, 3, draw).tolist() == [1, 2, 3]

    def test_crossover_exchanges_units(self):
        one, other = [np.zeros((2, 3)), np.zeros(3)], [np.ones((2, 3)), np.ones(3)]
        draw = FixedDraws(random=[[0.1, 0.9, 0.2], [0.7, 0.7, 0.1]])
        first, second = cross_over(one, other, draw)
        assert first[0].tolist() == [[0, 1, 0], [0, 1, 0]]
        assert first[1].tolist() == [1, 1, 0]
        assert all((a + b == 1).all() for a, b in zip(first, second, strict=True))

    def test_mutation_of_three_kinds(self):
        """Entries 0, 1, 2 of value 2: strongly moved, drawn anew, moved; strength 0.1."""
        matrix, bias = np.full((5, 6), 2.0), np.ones(6)
        draw = FixedDraws(
            integers=[3, [0, 1, 2]], random=[[0.04, 0.09, 0.5]], standard_normal=[[0.5, 0.5, 0.5]]
        )
        changed, same = mutate([matrix, bias], 0.1, 0.1, draw)
        assert changed.ravel()[:4].tolist() == pytest.approx([2 + 10 * 2 * 0.5, 0.5, 2.1, 2.0])
        assert (matrix == 2).all()
        assert same is bias

    def test_mutation_spares_most(self):
        matrix = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
        for seed in range(20):
            (changed,) = mutate([matrix], 0.1, 0.1, np.random.default_rng(seed))
            assert (changed != matrix).sum() <= 200
            assert changed.dtype == np.float32

    def test_generation(self):
        scheme = ERL(algorithm=TINY, num_learners=5, elite_fraction=0.4, synchronization_period=2)
        before = started(scheme)
        returns = np.array([[1.0], [5.0], [2.0], [4.0], [0.0], [99.0]])
        observations, draw = np.zeros((5, 2), np.float32), np.random.default_rng(1)
        after, review = scheme.review(before, returns, observations, draw)
        assert (review["best"], review["elites"], review["generation"]) == (1, [1, 3], 1)
        assert "synchronized" not in review
        for index in range(5):
            kept = equal(*(jax.tree.map(lambda leaf, i=index: leaf[i], state.population)
                           for state in (before, after)))  # fmt: skip
            assert kept is (index not in {*review["mutated"], *review["replaced"]})
        assert not {1, 3} & {*review["mutated"], *review["replaced"]}
        assert equal(after.champion, jax.tree.map(lambda leaf: leaf[1], before.population))
        assert equal(after.learners, before.learners)
        again, review = scheme.review(after, returns, observations, draw)
        assert review["synchronized"] == 4
        joined = jax.tree.map(lambda leaf: leaf[4], again.population)
        assert equal(joined, jax.tree.map(lambda leaf: leaf[0], before.learners.policy))

    def test_only_the_learner_is_noisy(self):
        scheme = ERL(algorithm=TINY, num_learners=2)
        acting = scheme.acting(started(scheme))
        observations = np.ones((3, 2), np.float32)
        first, second = (
            np.asarray(scheme.act(acting, observations, jax.random.key(0), np.int32(step)))
            for step in range(2)
        )
        assert (first[:2] == second[:2]).all()
        assert first[2] != second[2]

    def test_learner_updates_once_for_every_step_of_the_round(self):
        training = small_training(scheme="erl", num_learners=3, initial_steps=0)
        while training.last_review == {}:
            training.run(training.total_steps + 1)
        steps = training.total_steps
        assert (training.updates, training.backlog) == (0, steps)
        training.run(steps + 1)
        assert training.updates == steps
        row = training.evaluate()
        assert np.shape(row["learner_returns"]) == (1, 2)
        assert np.shape(row["gradient_returns"]) == (2,)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"elite_fraction": 1.0}, "keeps all 10 policies"),
         ({"elite_fraction": 1.5}, "elite_fraction must be between 0 and 1"),
         ({"synchronization_period": 0}, "synchronization_period must be at least 1"),
         ({"algorithm": "dqn"}, "dqn has no policy of its own")],
    )  # fmt: skip
    def test_nonsense(self, fields, message):
        assert message in str(resolve("Pendulum-v1", "erl", **fields).scheme.problem())

    def test_settings_of_the_original(self):
        for env, values in (("Swimmer-v5", (1, 0.1, 10)), ("Hopper-v5", (5, 0.3, 1)),
                            ("Walker2d-v5", (3, 0.2, 10))):  # fmt: skip
            scheme = resolve(env, "erl").scheme
            assert values == (
                scheme.episodes_per_round, scheme.elite_fraction, scheme.synchronization_period,
            )  # fmt: skip
