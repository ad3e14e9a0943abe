"""Exact values, distances and the minimiser, each against another way to get it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from p3s.errors import UserError
from p3s.theory.draws import random_mdps, random_policies
from p3s.theory.mdp import (
    FiniteMDP,
    action_values,
    advantages,
    discounted_visits,
    expected,
    from_arrays,
    sample_indices,
    start_value,
    state_values,
)
from p3s.theory.policies import guided_policy, kl, normalize, total_variation
from p3s.theory.update import delta, guided_update, improvement_gap, threshold
from p3s.theory.worlds import deceptive_chain, terminal_states, trap_grid


def augmented_loss(
    log_policy: np.ndarray,
    log_best: np.ndarray,
    values: np.ndarray,
    beta: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """The augmented loss (eq. 3), with `weights` (batch, state) as the distribution D: (batch,)."""
    pull = np.asarray(beta)[..., None] * kl(log_policy, log_best)
    return (weights * (pull - expected(log_policy, values))).sum(axis=-1)


def sample_returns(
    mdp: FiniteMDP,
    log_policy: np.ndarray,
    state: int,
    action: int,
    num_episodes: int,
    num_steps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Discounted returns of episodes from (state, action) in the first process: (episodes,)."""
    policy = np.exp(log_policy[0]).cumsum(axis=-1)
    moves = mdp.transition[0].cumsum(axis=-1)
    states, actions = np.full(num_episodes, state), np.full(num_episodes, action)
    total, weight = np.zeros(num_episodes), 1.0
    for _ in range(num_steps):
        total += weight * mdp.reward[0, states, actions]
        weight *= mdp.discount[0]
        states = sample_indices(moves[states, actions], rng)
        actions = sample_indices(policy[states], rng)
    return total


def test_values_of_a_two_state_process_by_hand() -> None:
    """Action 0 stays, 1 switches; state 0 pays 1: always staying is worth 1 / (1 - 1/2) = 2."""
    transition = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    mdp = from_arrays(transition, np.array([[1.0, 1.0], [0.0, 0.0]]), 0.5, np.array([1.0, 0.0]))
    with np.errstate(divide="ignore"):
        stay = np.log([[[1.0, 0.0], [1.0, 0.0]]])
    assert state_values(mdp, stay)[0] == pytest.approx([2.0, 0.0])
    assert action_values(mdp, stay)[0] == pytest.approx(np.array([[2.0, 1.0], [0.0, 1.0]]))
    assert start_value(mdp, stay)[0] == pytest.approx(2.0)
    assert discounted_visits(mdp, stay)[0] == pytest.approx([2.0, 0.0])


def test_exact_values_satisfy_the_bellman_equation() -> None:
    rng = np.random.default_rng(0)
    mdp = random_mdps(200, 6, 3, rng)
    log_policy = random_policies(mdp, rng)
    q = action_values(mdp, log_policy)
    following = np.einsum("bsan,bn->bsa", mdp.transition, expected(log_policy, q))
    assert np.abs(mdp.reward + mdp.discount[:, None, None] * following - q).max() < 1e-10
    assert np.abs(expected(log_policy, advantages(mdp, log_policy))).max() < 1e-10


def test_exact_value_equals_a_long_monte_carlo_average() -> None:
    rng = np.random.default_rng(1)
    mdp = random_mdps(1, 4, 3, rng, discount=0.9)
    log_policy = random_policies(mdp, rng)
    exact = action_values(mdp, log_policy)[0]
    scores = []
    for state, action in np.ndindex(exact.shape):
        returns = sample_returns(mdp, log_policy, state, action, 4000, 250, rng)
        scores.append((returns.mean() - exact[state, action]) / (returns.std() / np.sqrt(4000)))
    assert np.abs(scores).max() < 4.0
    assert 0.2 < np.std(scores) < 2.0, "the error is one of sampling, neither more nor less"


@pytest.mark.parametrize("seed", range(10))
def test_minimiser_equals_a_numerical_minimisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdps(1, 3, 3, rng)
    log_old, log_best = (normalize(rng.standard_normal((1, 3, 3))) for _ in range(2))
    beta, weights = np.array([10.0 ** rng.uniform(-0.5, 0.5)]), rng.dirichlet(np.full(3, 9.0))[None]
    q = action_values(mdp, log_old)

    def loss(logits: np.ndarray) -> float:
        policy = normalize(logits.reshape(1, 3, 3))
        return float(augmented_loss(policy, log_best, q, beta, weights)[0])

    def slope(logits: np.ndarray) -> np.ndarray:
        policy = normalize(logits.reshape(1, 3, 3))
        cost = beta * (policy - log_best) - q
        centred = cost - expected(policy, cost)[..., None]
        return (weights[..., None] * np.exp(policy) * centred).ravel()

    found = minimize(loss, np.zeros(9), jac=slope, method="BFGS", options={"gtol": 1e-12})
    exact = guided_policy(log_best, q, beta)
    numerical = softmax(found.x.reshape(1, 3, 3), axis=-1)
    assert np.abs(np.exp(exact) - numerical).max() < 1e-6
    assert loss(exact.ravel()) <= found.fun + 1e-12


def test_minimiser_keeps_its_digits_for_a_tiny_beta() -> None:
    q = np.array([[[1.0, 0.0]]])
    log_policy = guided_policy(np.log([[[0.5, 0.5]]]), q, np.array([1e-4]))
    assert log_policy[0, 0] == pytest.approx([0.0, -1e4])


def test_distances() -> None:
    one, other = np.log([[[0.5, 0.5]]]), np.log([[[0.9, 0.1]]])
    assert kl(one, other)[0, 0] == pytest.approx(0.5 * np.log(0.5 / 0.9) + 0.5 * np.log(5.0))
    assert total_variation(one, other)[0, 0] == pytest.approx(0.4)
    assert kl(one, one)[0, 0] == 0.0
    near = normalize(one + np.array([1e-9, -1e-9]))
    assert kl(near, one)[0, 0] == pytest.approx(0.5e-18, rel=1e-3)
    with np.errstate(divide="ignore"):
        certain = np.log([[[1.0, 0.0]]])
    assert kl(certain, one)[0, 0] == pytest.approx(np.log(2.0))
    assert kl(one, certain)[0, 0] == np.inf


def test_gap_equals_its_series() -> None:
    rng = np.random.default_rng(2)
    mdp = random_mdps(3, 4, 2, rng, discount=0.7)
    update = guided_update(mdp, random_policies(mdp, rng), random_policies(mdp, rng), 0.5)
    level = threshold(update)
    moves = np.einsum("bsa,bsan->bsn", np.exp(update.log_best), mdp.transition)
    at = np.einsum("bsan->bsan", mdp.transition)
    total = np.zeros_like(mdp.reward)
    for k in range(1, 200):
        total += 0.7**k * np.einsum("bsan,bn->bsa", at, delta(update, level))
        at = np.einsum("bsan,bnm->bsam", at, moves)
    assert improvement_gap(update, level) == pytest.approx(0.5 * total)


def test_worlds() -> None:
    for mdp, ends in ((deceptive_chain(), 2), (trap_grid(), 2)):
        assert terminal_states(mdp).sum() == ends
        assert mdp.transition.sum(axis=-1) == pytest.approx(1.0)
    with pytest.raises(UserError, match="length"):
        deceptive_chain(3)
    with pytest.raises(UserError, match="start"):
        trap_grid(("..", ".G"))


@pytest.mark.parametrize(
    ("transition", "reward", "discount", "message"),
    [
        (np.ones((2, 2, 3)), np.ones((2, 2)), 0.9, "transition must have shape"),
        (np.ones((1, 2, 1)), np.ones((1, 2)), 1.0, "discount"),
        (np.full((1, 2, 1), 0.5), np.ones((1, 2)), 0.9, "sum to 1"),
    ],
)
def test_wrong_arrays_are_refused_in_one_line(transition, reward, discount, message) -> None:
    with pytest.raises(UserError, match=message):
        from_arrays(transition, reward, discount)
