"""Appendix A on random finite processes: every statement holds whenever its assumptions do."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p3s.theory.draws import random_updates
from p3s.theory.lemmas import (
    DISCOUNT_LIMIT,
    SHARP_DISCOUNT_LIMIT,
    STATEMENTS,
    a1_holds,
    a2_holds,
    assumed,
    lemma_2,
    lemma_3,
    lemma_4,
    lemma_5,
    monotone_improvement,
    proposition_2,
    theorem_1a,
)
from p3s.theory.mdp import FiniteMDP, action_values, from_arrays
from p3s.theory.policies import normalize, tilt
from p3s.theory.update import (
    GuidedUpdate,
    guided_update,
    lemma_5_constants,
    smallest_threshold,
    threshold,
)

TOLERANCE = 1e-9

thorough = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


@st.composite
def processes(draw: st.DrawFn) -> FiniteMDP:
    """One process whose every number hypothesis chooses, and so can also shrink."""
    num_states, num_actions = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    shape = (num_states, num_actions)
    sharp = st.sampled_from([-9.0, -1.0, 0.0, 1.0])
    transition = np.exp(
        normalize(draw(arrays(float, (*shape, num_states), elements=sharp, fill=st.nothing())))
    )
    reward = draw(arrays(float, shape, elements=numbers(-1.0, 1.0), fill=st.nothing()))
    discount = draw(st.one_of(numbers(0.001, 0.2), numbers(0.0, 0.99)))
    return from_arrays(transition, reward, discount)


@st.composite
def policies(draw: st.DrawFn, mdp: FiniteMDP) -> np.ndarray:
    return normalize(
        draw(arrays(float, mdp.reward.shape, elements=numbers(-6.0, 6.0), fill=st.nothing()))
    )


@st.composite
def updates(draw: st.DrawFn) -> GuidedUpdate:
    """A guided update whose best is any policy, or the old one improved (then A1 holds)."""
    mdp = draw(processes())
    log_old = draw(policies(mdp))
    if draw(st.booleans()):
        log_best = draw(policies(mdp))
    else:
        log_best = tilt(log_old, draw(numbers(0.0, 5.0)) * action_values(mdp, log_old))
    return guided_update(mdp, log_old, log_best, 10.0 ** draw(numbers(-2.0, 1.0)))


def test_every_statement_holds_whenever_its_assumptions_do() -> None:
    held: Counter[str] = Counter()

    @settings(thorough, max_examples=1000)
    @given(updates())
    def check(update: GuidedUpdate) -> None:
        # A pull that changes nothing, or a future that does not count, proves nothing.
        telling = update.kl_new_best.min() > 1e-6 and update.mdp.discount[0] > 1e-3
        for statement in STATEMENTS:
            if assumed(update, statement.needs)[0]:
                held[statement.name] += int(telling)
                assert statement.sides(update).margin[0] >= -TOLERANCE, statement.name

    check()
    assert min(held[statement.name] for statement in STATEMENTS) >= 20, held


@thorough
@given(updates(), numbers(-2.0, 2.0))
def test_lemmas_hold_for_any_balance_constant(update: GuidedUpdate, exponent: float) -> None:
    balance = 10.0**exponent
    rho, d = lemma_5_constants(update, balance)
    level = threshold(update, rho, d)
    best_level = threshold(update)
    assert (level >= best_level * (1 - 1e-12)).all(), "the balanced C is the smallest threshold"
    assert lemma_5(update, level).margin[0] >= -TOLERANCE
    assert lemma_5(update, smallest_threshold(update)).margin[0] >= -TOLERANCE
    pair = (update.mdp, update.log_new, update.log_old)
    assert lemma_4(*pair, balance).margin[0] >= -TOLERANCE
    if a1_holds(update)[0]:
        for t in (level, smallest_threshold(update)):
            assert proposition_2(update, t).margin[0] >= -TOLERANCE
            assert theorem_1a(update, t).margin[0] >= -TOLERANCE


@thorough
@given(st.data())
def test_lemmas_2_to_4_hold_for_any_two_policies(data: st.DataObject) -> None:
    mdp = data.draw(processes())
    one, other = data.draw(policies(mdp)), data.draw(policies(mdp))
    assert lemma_2(mdp, one, other).margin[0] >= -TOLERANCE
    assert lemma_3(mdp, one, other).margin[0] >= -TOLERANCE
    assert lemma_4(mdp, one, other).margin[0] >= -TOLERANCE


@thorough
@given(updates())
def test_a1_and_a2_exclude_each_other_above_the_discount_limits(update: GuidedUpdate) -> None:
    discount = update.mdp.discount[0]
    changed = update.kl_new_best.min() > TOLERANCE
    if a1_holds(update)[0] and changed:
        if discount > DISCOUNT_LIMIT + TOLERANCE:
            assert not a2_holds(update)[0]
        if discount > SHARP_DISCOUNT_LIMIT + TOLERANCE:
            assert not a2_holds(update, smallest_threshold(update))[0]


@pytest.fixture(scope="module")
def batch() -> GuidedUpdate:
    return random_updates(10_000, 5, 3, np.random.default_rng(0))


def test_ten_thousand_processes_are_checked_in_seconds() -> None:
    start = time.perf_counter()
    update = random_updates(10_000, 5, 3, np.random.default_rng(1))
    for statement in STATEMENTS:
        margin = statement.sides(update).margin[assumed(update, statement.needs)]
        assert (margin >= -TOLERANCE).all(), statement.name
    assert time.perf_counter() - start < 60.0


def test_the_batch_is_not_vacuous(batch: GuidedUpdate) -> None:
    counts = {
        statement.name: int(assumed(batch, statement.needs).sum()) for statement in STATEMENTS
    }
    assert counts["Lemma 1"] > 1000
    assert counts["Theorem 1 (b)"] > 50
    assert counts["Theorem 1"] > 50
    assert counts["Theorem 1, corrected"] > 5000
    assert min(counts.values()) > 0


def test_corrected_condition_holds_at_discounts_where_a2_cannot(batch: GuidedUpdate) -> None:
    high = batch.mdp.discount > 0.9
    assert high.sum() > 200
    assert not assumed(batch, ("A1", "A2"))[high].any()
    corrected = assumed(batch, ("A2'",)) & high
    assert corrected.sum() > 0.5 * high.sum()
    assert (monotone_improvement(batch).margin[corrected] >= -TOLERANCE).all()


def test_worked_by_hand() -> None:
    """One state, rewards 1 and 0, discount 1/2, old = best = (1/2, 1/2), beta = 1 / ln 3."""
    mdp = from_arrays(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), 0.5)
    uniform = np.log(np.full((1, 1, 2), 0.5))
    update = guided_update(mdp, uniform, uniform, 1.0 / np.log(3.0))
    assert np.exp(update.log_new[0, 0]) == pytest.approx([0.75, 0.25])
    assert update.q_old[0, 0] == pytest.approx([1.5, 0.5])
    assert update.q_new[0, 0] == pytest.approx([1.75, 0.75])
    divergence = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert update.kl_new_best[0, 0] == pytest.approx(divergence)
    assert update.kl_max[0] == pytest.approx(divergence)
    assert update.alpha[0] == pytest.approx(0.25)
    assert update.epsilon[0] == pytest.approx(0.75)
    rho, d = lemma_5_constants(update, 2.0)
    assert rho[0] == pytest.approx(2 * 0.75 * np.log(3.0) * 2.0)
    assert d[0] == pytest.approx(2 * 0.75 * np.log(3.0) / 2.0)
    # Two T above KL: Delta = KL - T, and in one state the gap is beta gamma / (1 - gamma) Delta.
    level = threshold(update, rho, d)
    gap = theorem_1a(update, level).right - update.q_best
    assert gap[0, 0] == pytest.approx((divergence - level[0]) / np.log(3.0))
