"""Counter-examples: what fails without A1, without A2, or with other constants than Lemma 5's."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.theory.draws import random_mdps, random_policies, random_updates
from p3s.theory.lemmas import (
    a1_holds,
    a1_margin,
    a2_holds,
    a2_margin,
    corrected_a2_holds,
    lemma_5,
    monotone_improvement,
    proposition_1,
    theorem_1a,
    theorem_1b,
)
from p3s.theory.limits import (
    CHIEF_D_MIN,
    CHIEF_RHO,
    CHOICE_CLAIMS,
    CLAIMS,
    CLEARLY,
    Claim,
    dominates,
    invest_or_cash,
    rare_best,
    rich_or_poor,
)
from p3s.theory.mdp import from_arrays, state_values
from p3s.theory.policies import kl, tilt
from p3s.theory.update import (
    GuidedUpdate,
    guided_update,
    lemma_5_constants,
    smallest_threshold,
    threshold,
)


@pytest.fixture(scope="module")
def batch():
    return random_updates(10_000, 3, 2, np.random.default_rng(0))


@pytest.mark.parametrize("claim", CLAIMS[:5], ids=lambda claim: claim.name)
def test_search_finds_counter_examples(claim: Claim, batch) -> None:
    failing = claim.margin(batch)[claim.applies(batch)] < -CLEARLY
    assert failing.any()


@pytest.mark.parametrize("claim", CHOICE_CLAIMS, ids=lambda claim: claim.name)
def test_a_best_by_return_need_not_satisfy_a1(claim: Claim) -> None:
    update = random_updates(2000, 3, 2, np.random.default_rng(0), construct_every=0)
    applies = claim.applies(update)
    assert (claim.margin(update)[applies] < -CLEARLY).sum() > 100
    # The converse is true: A1 makes the best at least as good in every state.
    best, old = (state_values(update.mdp, log) for log in (update.log_best, update.log_old))
    held = a1_holds(update)
    assert held.sum() > 100
    assert (best - old)[held].min() >= -1e-9


def test_theorem_1_is_false_for_some_rho_and_d() -> None:
    update = invest_or_cash()
    rho, d = 0.02, 0.05
    level = threshold(update, rho, d)
    assert a1_holds(update)[0]
    assert a2_holds(update, level)[0]
    assert theorem_1b(update, level).margin[0] >= 0
    # Every learner gets worse than the best in every state and action, by this much at least:
    assert (update.q_best - update.q_new).min() == pytest.approx(0.0459, abs=1e-4)
    assert theorem_1a(update, level).margin[0] < -CLEARLY
    assert lemma_5(update, level).margin[0] < -CLEARLY, "because Lemma 5 is false for them"
    # With Lemma 5's own constants (a) holds again, and it is A2 that does not.
    assert theorem_1a(update).margin[0] >= 0
    assert not a2_holds(update)[0]
    assert not corrected_a2_holds(update)[0]


def test_theorem_1_is_false_for_the_papers_rho_and_d() -> None:
    """rho = 2 and d = 0.02 are Appendix I's; A2 holds with room, and everything gets worse."""
    update = rich_or_poor()
    level = threshold(update, CHIEF_RHO, CHIEF_D_MIN)
    assert level[0] == pytest.approx(2 * 1.2025, abs=1e-3)
    assert a1_margin(update)[0] > 0.008
    assert a2_margin(update, level)[0] > 2.0
    assert theorem_1b(update, level).margin[0] > 0
    assert (update.q_new - update.q_best).max() < -5.8
    assert theorem_1a(update).margin[0] >= 0, "with Lemma 5's constants (a) is true"
    assert not a2_holds(update)[0]
    assert not corrected_a2_holds(update)[0]


def test_with_two_actions_a1_rules_out_a2_for_rho_above_one() -> None:
    """A1 puts best between old and new, so new is at least as far from old as from best."""
    update = random_updates(10_000, 3, 2, np.random.default_rng(5))
    held = a1_holds(update)
    assert held.sum() > 1000
    far = kl(update.log_new, update.log_old) - update.kl_new_best
    assert far[held].min() >= -1e-12
    assert not a2_holds(update, threshold(update, 1.001, 1e-9))[held].any()


def test_proposition_1_fails_without_a1_by_hand() -> None:
    """One state: a strong pull to a best that prefers the bad action."""
    mdp = from_arrays(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), 0.9)
    update = guided_update(mdp, np.log([[[0.9, 0.1]]]), np.log([[[0.1, 0.9]]]), 10.0)
    assert not a1_holds(update)[0]
    assert proposition_1(update).margin[0] < -6.0


def test_better_in_every_state_and_still_no_a1() -> None:
    """The best invests and harvests; one step of it, followed by somebody who wastes, is a loss."""
    base = invest_or_cash()
    log_old = np.log([[[0.9, 0.1], [0.9, 0.1]]])
    log_best = np.log([[[0.1, 0.9], [0.1, 0.9]]])
    update = guided_update(base.mdp, log_old, log_best, 1.0)
    assert dominates(update)[0]
    assert not a1_holds(update)[0]


def test_discount_limit_of_one_half_is_reached() -> None:
    below, above = rare_best(1e-300, 0.49), rare_best(1e-300, 0.51)
    assert a1_holds(below)[0]
    assert a2_holds(below, smallest_threshold(below))[0]
    assert monotone_improvement(below).margin[0] > 0
    assert a1_holds(above)[0]
    assert not a2_holds(above, smallest_threshold(above))[0]


def test_the_two_constants_of_lemma_5_are_one() -> None:
    update = random_updates(50, 3, 2, np.random.default_rng(3))
    products = [np.prod(lemma_5_constants(update, balance), axis=0) for balance in (0.1, 1.0, 7.0)]
    assert products[0] == pytest.approx(products[1])
    assert products[0] == pytest.approx(products[2])


def test_a_terminal_state_rules_a2_out() -> None:
    transition = np.zeros((2, 2, 2))
    transition[:, :, 1] = 1.0
    mdp = from_arrays(transition, np.array([[1.0, 0.0], [0.0, 0.0]]), 0.1)
    rng = np.random.default_rng(0)
    update = guided_update(mdp, random_policies(mdp, rng), random_policies(mdp, rng), 0.1)
    assert update.kl_new_best[0, 1] == pytest.approx(0.0, abs=1e-15)
    assert not a2_holds(update, threshold(update, 1e-9, 1e-9))[0]


def test_a_deterministic_best_rules_a2_out() -> None:
    mdp = random_mdps(1, 3, 2, np.random.default_rng(0))
    with np.errstate(divide="ignore"):
        log_best = np.log(np.broadcast_to([1.0, 0.0], mdp.reward.shape))
    update = guided_update(mdp, random_policies(mdp, np.random.default_rng(1)), log_best, 0.1)
    assert update.kl_new_best == pytest.approx(0.0)
    assert a2_margin(update)[0] < 0


def test_states_the_replay_never_saw_break_theorem_1a() -> None:
    """Proposition 1 survives where the old policy stays; Theorem 1 (a) does not."""
    rng = np.random.default_rng(0)
    full = random_updates(5000, 3, 2, rng, discount=0.1)
    log_best = tilt(full.log_old, 5.0 * full.q_old)
    visited = np.broadcast_to([True, False, False], (5000, 3))
    beta = np.full(5000, 0.05)
    seen = guided_update(full.mdp, full.log_old, log_best, beta)
    unseen = guided_update(full.mdp, full.log_old, log_best, beta, visited)
    assert a1_holds(unseen).all()
    assert theorem_1a(seen).margin.min() >= -1e-9
    assert proposition_1(unseen).margin.min() >= -1e-9
    assert (theorem_1a(unseen).margin < -CLEARLY).any()


def gap_slope(update: GuidedUpdate) -> np.ndarray:
    """d/dbeta of beta KL(new || best) in each state: KL - Var_new(Q^old) / beta^2, (batch, state).

    Appendix B takes KL alone as the slope; it ignores that new changes with beta.
    """
    policy = np.exp(update.log_new)
    mean = (policy * update.q_old).sum(axis=-1, keepdims=True)
    variance = (policy * (update.q_old - mean) ** 2).sum(axis=-1)
    return kl(update.log_new, update.log_best) - variance / update.beta[:, None] ** 2


def test_slope_of_the_gap_is_not_what_appendix_b_says() -> None:
    update = random_updates(500, 3, 2, np.random.default_rng(0))
    step = 1e-5 * update.beta
    parts = []
    for beta in (update.beta - step, update.beta + step):
        moved = guided_update(update.mdp, update.log_old, update.log_best, beta)
        parts.append(beta[:, None] * moved.kl_new_best)
    slope = (parts[1] - parts[0]) / (2 * step[:, None])
    assert gap_slope(update) == pytest.approx(slope, abs=1e-5, rel=1e-5)
    # Appendix B's slope is KL(new || best), never negative; the true one is in most states.
    assert (gap_slope(update) < 0).mean() > 0.5
