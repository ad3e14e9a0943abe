"""Off-policy algorithms under every scheme, with dense layers and with batch renormalization.

A scheme sees an algorithm through few methods, so that a combination is checked without compiling
it: acting and learning are traced, which finds whatever does not fit, and reviews are done.
Algorithms that share these methods are of one kind. The fast tests take every scheme with every
kind and every algorithm with p3s; the slow tests take the other combinations.
Compiled trainings of each are in the two test_contract.py.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.algorithms.off_policy import OffPolicy
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.schemes import Scheme
from tests.helpers import leaves
from tests.helpers_losses import SPECS, random_batch
from tests.networks_for_tests import BatchRenorm

SCHEMES = ("single", "p3s", "sharing", "resetting", "distributed", "center", "pbt", "pb2", "mf_pbt")
SCHEMES += ("dvd",)
OFF_POLICY = [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)]
NETWORKS = ("mlp", BatchRenorm.name)
KEY = jax.random.key(3)


def kind(algorithm: str) -> tuple:
    """What a scheme can tell of an algorithm, beside the hyper-parameters."""
    made = ALGORITHMS[algorithm]
    methods = (made.act, made.distance_between, made.policy_of, made.with_policy)
    return made.actions, made.has_own_policy, made.takes_loss_terms, *methods


KINDS = list({kind(name): name for name in reversed(OFF_POLICY)}.values())
"""The first algorithm of every kind."""
RENORMALIZED = "td3"
"""With batch renormalization policies carry statistics, whatever the algorithm: one is enough."""


def is_fast(scheme: str, algorithm: str, network: str) -> bool:
    """Whether the fast tests take this combination."""
    if network == "mlp":
        return algorithm in KINDS or scheme == "p3s"
    return algorithm == RENORMALIZED or (algorithm in KINDS and scheme == "p3s")


def cases(schemes: tuple[str, ...]) -> list:
    """Every combination, those that the fast tests leave out marked as slow."""
    return [
        pytest.param(*case, marks=[] if is_fast(*case) else pytest.mark.slow)
        for network in NETWORKS
        for algorithm in OFF_POLICY
        for scheme in schemes
        if scheme != "dvd" or ALGORITHMS[algorithm].actions == "continuous"
        for case in [(scheme, algorithm, network)]
    ]


def make(scheme: str, algorithm: str, **fields) -> Scheme:
    counted = "envs_per_learner" if scheme == "distributed" else "num_learners"
    learners = {} if scheme == "single" else {counted: 8 if scheme == "mf_pbt" else 3}
    fixed = {"hidden_sizes": (4,), "batch_size": 7, "learners_start": "independent"}
    config = resolve(None, scheme, algorithm, "paper", **{**fixed, **learners, **fields})
    config.check()
    return config.scheme


def forms(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)


def moved(learners, by: float):
    """Other learners of the same form, as if they had learned."""
    draw = np.random.default_rng(1)

    def move(leaf):
        leaf = np.asarray(leaf)
        if leaf.dtype != np.float32:
            return leaf + draw.integers(0, 9, leaf.shape, leaf.dtype)
        return leaf + by * np.abs(draw.normal(size=leaf.shape)).astype(leaf.dtype)

    return jax.tree.map(move, learners)


@pytest.fixture(scope="module")
def begun():
    """The state at the start of each combination, made once."""
    states = {}

    def begin(*case: str):
        if case not in states:
            scheme, algorithm, network = case
            made = make(scheme, algorithm, network=network)
            spec = SPECS[ALGORITHMS[algorithm].actions]
            states[case] = made, spec, made.init(KEY, spec)
        return states[case]

    return begin


@pytest.mark.parametrize(("scheme", "algorithm", "network"), cases(SCHEMES))
class TestEveryCombination:
    def test_acting_and_learning_fit(self, scheme, algorithm, network, begun):
        made, spec, state = begun(scheme, algorithm, network)
        for leaf in leaves(state.learners):
            assert leaf.shape[0] == made.num_trained
            assert np.isfinite(leaf).all()
        seen = np.zeros((made.num_envs, spec.observation_size), np.float32)
        action = jax.eval_shape(made.act, made.acting(state), seen, KEY, np.int32(1))
        expected = (made.num_envs,) if spec.discrete else (made.num_envs, spec.action_size)
        assert action.shape == expected
        batch = random_batch(spec, 0)
        batches = jax.tree.map(lambda part: np.stack([part] * made.num_trained), batch)
        after, metrics = jax.eval_shape(partial(made.learn, with_policy=True), state, batches, KEY)
        assert forms(after) == forms(state)
        assert {leaf.shape for leaf in metrics.values()} == {(made.num_trained,)}
        champions = jax.tree.leaves(made.champions(state))
        count = made.num_trained + len(made.extra_champions)
        assert {leaf.shape[0] for leaf in champions} == {count}

    def test_review(self, scheme, algorithm, network, begun):
        made, spec, state = begun(scheme, algorithm, network)
        state = state._replace(learners=moved(state.learners, 0.1))
        # The last learner is the best.
        acting = made.num_envs // made.envs_per_learner
        returns = np.arange(acting * made.num_recent * 1.0).reshape(acting, -1)
        seen = random_batch(spec, 2, 16).observation
        (after, review), (again, _) = (
            made.review(state, returns, seen, np.random.default_rng(0)) for _ in range(2)
        )
        assert forms(after) == forms(state)
        assert all(np.isfinite(leaf).all() for leaf in leaves(after))
        assert all(map(np.array_equal, leaves(after), leaves(again)))
        assert review["best"] == made.num_trained - 1
        check_review(scheme, made, state, after, review)
        if scheme == "center":
            for _ in range(5):
                after, later = made.review(after, returns, seen, np.random.default_rng(0))
            assert 0 < later["center_loss"] < review["center_loss"]


def check_review(scheme: str, made: Scheme, before, after, review) -> None:
    """What is peculiar to the scheme has happened."""
    if scheme == "p3s":
        assert review["spread"] > 0
        assert review["change"] > 0
        guide = leaves(after.guide)
        best = [leaf[-1] for leaf in leaves(before.learners.policy)]
        assert all(map(np.array_equal, guide, best))
    if scheme == "resetting":
        assert review["copied_to"] == [0, 1]
        policies = leaves(made.policies(after))
        assert all((leaf == leaf[-1:]).all() for leaf in policies)
        assert all(map(np.array_equal, leaves(after.learners.value), leaves(before.learners.value)))
    if scheme in ("pbt", "pb2"):
        assert {"learning_rate", "discount_factor"} <= set(review["own_fields"])
        assert all(hasattr(made.algorithm, name) for name in review["own_fields"])
        assert review["copies"] == [[2, 0]]
        assert all(np.array_equal(leaf[0], leaf[2]) for leaf in leaves(after.learners))


def test_kinds():
    """Algorithms that act differently are not taken for one kind."""
    assert set(KINDS) >= {"td3", "sac", "sql", "dqn", "sac_discrete"}


def test_nothing_to_copy():
    for algorithm in OFF_POLICY:
        scheme = make("resetting", algorithm, copied="policy_and_target")
        start = partial(jax.eval_shape, partial(scheme.init, spec=SPECS[scheme.algorithm.actions]))
        if algorithm in ("td3", "ddpg", "dqn"):
            assert "policy" in start(KEY).learners.targets
        else:
            with pytest.raises(
                UserError, match=f"{algorithm} has no target policy: choose --copied policy"
            ):
                start(KEY)


def test_perturbed_fields_are_those_that_there_are():
    assert make("pbt", "td3").perturbed == ("learning_rate", "exploration_noise", "discount_factor")
    assert make("pbt", "sac").perturbed == ("learning_rate", "discount_factor")
    assert make("pbt", "sac", perturbed=("target_entropy",)).perturbed == ("target_entropy",)
    with pytest.raises(UserError, match="exploration_noise is not a number of sac"):
        make("pbt", "sac", perturbed=("exploration_noise",))


@pytest.mark.parametrize(("scheme", "algorithm", "network"), cases(("cem", "erl", "evorainbow")))
def test_evolution_fits_every_algorithm_with_a_policy(scheme, algorithm, network):
    fields = {"hidden_sizes": (4,), "batch_size": 7, "num_learners": 4, "network": network}
    made = resolve(None, scheme, algorithm, "paper", **fields).scheme
    spec = SPECS[ALGORITHMS[algorithm].actions]
    if not made.algorithm.has_own_policy:
        assert "has no policy of its own" in str(made.problem())
        return
    shapes = jax.eval_shape(partial(made.init, spec=spec), KEY)
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    seen = np.zeros((made.num_envs, spec.observation_size), np.float32)
    action = jax.eval_shape(made.act, made.acting(state), seen, KEY, np.int32(1))
    assert action.shape[0] == made.num_envs
    count = made.num_batches(True)
    batches = jax.tree.map(lambda part: np.stack([part] * count), random_batch(spec, 0))
    after, metrics = jax.eval_shape(partial(made.learn, with_policy=True), state, batches, KEY)
    assert forms(after) == forms(state)
    assert {leaf.shape for leaf in metrics.values()} == {(count,)}
    if scheme != "cem":
        returns = np.arange(float(made.num_envs))[:, None]
        reviewed, review = made.review(state, returns, seen, np.random.default_rng(0))
        assert review["best"] == 3
    else:
        evolve = partial(type(made)._evolve.__wrapped__, made)
        reviewed = jax.eval_shape(evolve, state, np.arange(2), np.arange(4), KEY)
    assert forms(reviewed) == forms(state)
