"""ERL: the chief's rules on numbers worked by hand and fixed draws."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.config.run import resolve
from p3s.schemes import ERL
from p3s.schemes.erl import cross_over, mutate, tournament
from p3s.types import EnvSpec
from tests.helpers import problem_of, record, resume, run, small_training

TINY = ALGORITHMS["td3"](hidden_sizes=(4,))
SPEC = EnvSpec.flat(2, 1)


def started(scheme):
    return jax.jit(scheme.init, static_argnums=1)(jax.random.key(0), SPEC)


def equal(one, other) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


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
        assert (training.counters.updates, training.counters.backlog) == (0, steps)
        training.run(steps + 1)
        assert training.counters.updates == steps
        row = training.evaluate()
        assert np.shape(row["learner_returns"]) == (1, 2)
        assert np.shape(row["gradient_returns"]) == (2,)

    @pytest.mark.slow
    def test_with_the_settings_of_the_original_a_run_resumes_to_the_bit(self, tmp_path):
        fields = {"scheme": "erl", "algorithm": "ddpg", "preset": "authors"}
        fields |= {"policy_hidden_sizes": (8,)}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "parts", until=330, **fields)
        resume(tmp_path / "parts")
        whole = record(tmp_path / "whole")
        assert record(tmp_path / "parts") == whole
        assert len(whole["lineage"]) > 2

    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"elite_fraction": 1.0}, "keeps all 10 policies"),
         ({"elite_fraction": 1.5}, "elite_fraction must be between 0 and 1"),
         ({"synchronization_period": 0}, "synchronization_period must be at least 1"),
         ({"algorithm": "dqn"}, "dqn has no policy of its own")],
    )  # fmt: skip
    def test_nonsense(self, fields, message):
        assert message in problem_of(resolve("Pendulum-v1", "erl", **fields).scheme)

    def test_settings_of_the_original(self):
        for env, values in (("Swimmer-v5", (1, 0.1, 10)), ("Hopper-v5", (5, 0.3, 1)),
                            ("Walker2d-v5", (3, 0.2, 10))):  # fmt: skip
            scheme = resolve(env, "erl").scheme
            assert values == (
                scheme.episodes_per_round, scheme.elite_fraction, scheme.synchronization_period,
            )  # fmt: skip
