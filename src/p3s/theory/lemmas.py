"""Appendix A step by step: a statement returns both of its sides, an assumption is a predicate.

    A1      E_best[Q^old](s) >= E_old[Q^old](s)                              for all s
    A2      KL(new || best)(s) >= T = max{rho KL_max(new || old), d}         for all s
    A2'     beta (KL(new || best) + KL(best || new)) >= TV(new, best) span(Q^new - Q^old)

A2' is ours. It implies what A2 is meant to imply (new is at least as good as best), needs no A1,
and can hold at any discount. A1 and A2 cannot both hold above a discount of 1/2 (docs/theory.md).

Differs from the authors in: T defaults to the threshold that Lemma 5 derives (update.threshold),
because inequality (a) is false for smaller constants. The paper's "for some rho, d" hides that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.theory.mdp import (
    FiniteMDP,
    action_values,
    advantages,
    centered,
    discounted_sum,
    expected,
    next_expected,
)
from p3s.theory.policies import kl, total_variation
from p3s.theory.update import GuidedUpdate, delta, improvement_gap, threshold

DISCOUNT_LIMIT = np.sqrt(2.0) - 1.0
"""Above this discount A1 and A2 with Lemma 5's derived constants exclude each other."""
SHARP_DISCOUNT_LIMIT = 0.5
"""Above this discount A1 and A2 exclude each other for any constants that make Lemma 5 true."""

ROUNDING = 1e-12
"""A divergence below this cannot be distinguished from 0."""


@dataclass(frozen=True)
class Sides:
    """Both sides of a statement, for each process of the batch."""

    left: np.ndarray
    relation: str
    right: np.ndarray

    @property
    def margin(self) -> np.ndarray:
        """How far the statement is from failing in the worst state and action: (batch,)."""
        slack = {
            ">=": lambda: self.left - self.right,
            "<=": lambda: self.right - self.left,
            "==": lambda: -np.abs(self.left - self.right),
        }[self.relation]()
        return slack.reshape(slack.shape[0], -1).min(axis=1)


def a1_margin(update: GuidedUpdate) -> np.ndarray:
    """E_best[Q^old] - E_old[Q^old] in the worst state: (batch,)."""
    best = expected(update.log_best, update.q_old)
    return (best - expected(update.log_old, update.q_old)).min(axis=-1)


def a1_holds(update: GuidedUpdate) -> np.ndarray:
    """Whether Assumption 1 holds in all states: (batch,) of bool."""
    return a1_margin(update) >= 0.0


def a2_margin(update: GuidedUpdate, level: np.ndarray | None = None) -> np.ndarray:
    """KL(new || best) - T in the worst state: (batch,)."""
    level = threshold(update) if level is None else level
    return update.kl_new_best.min(axis=-1) - level


def a2_holds(update: GuidedUpdate, level: np.ndarray | None = None) -> np.ndarray:
    """Whether Assumption 2 holds in all states, with Lemma 5's T unless `level` is given: (batch,).

    The paper requires d > 0, so A2 fails if new and best agree up to rounding in some state.
    """
    return (a2_margin(update, level) >= 0.0) & (update.kl_new_best.min(axis=-1) > ROUNDING)


def corrected_a2_holds(update: GuidedUpdate) -> np.ndarray:
    """Whether A2' holds in all states: (batch,) of bool."""
    change = update.q_new - update.q_old
    drift = total_variation(update.log_new, update.log_best) * np.ptp(change, axis=-1)
    pull = update.beta[:, None] * (update.kl_new_best + update.kl_best_new)
    return (pull >= drift).all(axis=-1)


def lemma_1(update: GuidedUpdate) -> Sides:
    """Lemma 1 (needs A1): E_new[Q^old] >= E_old[Q^old] in every state."""
    left = expected(update.log_new, update.q_old)
    return Sides(left, ">=", expected(update.log_old, update.q_old))


def proposition_1(update: GuidedUpdate) -> Sides:
    """Proposition 1 (needs A1): Q^new >= Q^old."""
    return Sides(update.q_new, ">=", update.q_old)


def lemma_2(
    mdp: FiniteMDP, log_policy: np.ndarray, log_other: np.ndarray, alpha: np.ndarray | None = None
) -> Sides:
    """Lemma 2: |E_other[A^pi]| <= 2 alpha max|A^pi|; alpha is the largest total variation."""
    alpha = _coupling(log_policy, log_other) if alpha is None else alpha
    advantage = advantages(mdp, log_policy)
    bound = 2.0 * alpha * np.abs(advantage).max(axis=(1, 2))
    return Sides(np.abs(expected(log_other, advantage)), "<=", bound[:, None])


def lemma_3(mdp: FiniteMDP, log_policy: np.ndarray, log_other: np.ndarray) -> Sides:
    """Lemma 3: Q^other = Q^pi + gamma E_other[sum_{t >= 1} gamma^{t-1} A^pi(s_t, a_t)]."""
    values = action_values(mdp, log_policy)
    per_step = expected(log_other, centered(log_policy, values))
    ahead = next_expected(mdp, discounted_sum(mdp, log_other, per_step))
    right = values + mdp.discount[:, None, None] * ahead
    return Sides(action_values(mdp, log_other), "==", right)


def lemma_4(
    mdp: FiniteMDP,
    log_policy: np.ndarray,
    log_other: np.ndarray,
    balance: float | np.ndarray = 1.0,
) -> Sides:
    """Lemma 4: |Q^pi - Q^other| <= 2 eps gamma / (1 - gamma) max{C alpha^2, 1/C}, C = `balance`."""
    values = action_values(mdp, log_policy)
    epsilon = np.abs(centered(log_policy, values)).max(axis=(1, 2))
    alpha = _coupling(log_policy, log_other)
    scale = 2.0 * epsilon * mdp.discount / (1.0 - mdp.discount)
    bound = scale * np.maximum(balance * alpha**2, 1.0 / np.asarray(balance))
    difference = np.abs(values - action_values(mdp, log_other))
    return Sides(difference, "<=", bound[:, None, None])


def lemma_5(update: GuidedUpdate, level: np.ndarray | None = None) -> Sides:
    """Lemma 5: Q^new <= Q^old + beta max{rho KL_max(new || old), d}; it does not need A1."""
    level = threshold(update) if level is None else level
    return Sides(update.q_new, "<=", update.q_old + (update.beta * level)[:, None, None])


def proposition_2(update: GuidedUpdate, level: np.ndarray | None = None) -> Sides:
    """Proposition 2 (needs A1): E_new[Q^new] >= E_best[Q^new] + beta Delta(s)."""
    level = threshold(update) if level is None else level
    right = expected(update.log_best, update.q_new) + update.beta[:, None] * delta(update, level)
    return Sides(expected(update.log_new, update.q_new), ">=", right)


def theorem_1a(update: GuidedUpdate, level: np.ndarray | None = None) -> Sides:
    """Theorem 1 (a) (needs A1): Q^new >= Q^best + improvement gap."""
    level = threshold(update) if level is None else level
    return Sides(update.q_new, ">=", update.q_best + improvement_gap(update, level))


def theorem_1b(update: GuidedUpdate, level: np.ndarray | None = None) -> Sides:
    """Theorem 1 (b) (needs A2): Q^best + improvement gap >= Q^best."""
    level = threshold(update) if level is None else level
    return Sides(update.q_best + improvement_gap(update, level), ">=", update.q_best)


def monotone_improvement(update: GuidedUpdate) -> Sides:
    """The conclusion of Theorem 1 (needs A1 and A2, or A2' alone): Q^new >= Q^best."""
    return Sides(update.q_new, ">=", update.q_best)


def exact_improvement(update: GuidedUpdate) -> Sides:
    """Theorem 1 as an equality: Q^new = Q^best + the gap with the exact Delta.

    beta Delta*(s) = beta (KL(new || best) + KL(best || new)) + (E_new - E_best)[Q^new - Q^old](s)
    """
    change = update.q_new - update.q_old
    pull = update.beta[:, None] * (update.kl_new_best + update.kl_best_new)
    drift = expected(update.log_new, change) - expected(update.log_best, change)
    ahead = next_expected(update.mdp, discounted_sum(update.mdp, update.log_best, pull + drift))
    right = update.q_best + update.mdp.discount[:, None, None] * ahead
    return Sides(update.q_new, "==", right)


def a1_geometry(update: GuidedUpdate) -> Sides:
    """A1 as an inequality of distances: KL(old||new) >= KL(old||best) + KL(best||new)."""
    right = kl(update.log_old, update.log_best) + update.kl_best_new
    return Sides(kl(update.log_old, update.log_new), ">=", right)


def _coupling(log_policy: np.ndarray, log_other: np.ndarray) -> np.ndarray:
    return total_variation(log_policy, log_other).max(axis=-1)


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, its assumptions, and the function that computes its sides."""

    name: str
    claim: str
    needs: tuple[str, ...]
    sides: Callable[[GuidedUpdate], Sides]


STATEMENTS = (
    Statement("Lemma 1", "E_new Q_old ≥ E_old Q_old", ("A1",), lemma_1),
    Statement("Proposition 1", "Q_new ≥ Q_old", ("A1",), proposition_1),
    Statement(
        "Lemma 2",
        "|E_old A_new| ≤ 2α max|A_new|",
        (),
        lambda update: lemma_2(update.mdp, update.log_new, update.log_old),
    ),
    Statement(
        "Lemma 3",
        "Q_old = Q_new + γ E_old Σ γᵗ⁻¹ A_new",
        (),
        lambda update: lemma_3(update.mdp, update.log_new, update.log_old),
    ),
    Statement(
        "Lemma 4",
        "|Q_new − Q_old| ≤ 2εγ/(1−γ) max{Cα², 1/C}",
        (),
        lambda update: lemma_4(update.mdp, update.log_new, update.log_old),
    ),
    Statement("Lemma 5", "Q_new ≤ Q_old + β max{ρ KL_max, d}", (), lemma_5),
    Statement("Proposition 2", "E_new Q_new ≥ E_best Q_new + βΔ", ("A1",), proposition_2),
    Statement("Theorem 1 (a)", "Q_new ≥ Q_best + gap", ("A1",), theorem_1a),
    Statement("Theorem 1 (b)", "Q_best + gap ≥ Q_best", ("A2",), theorem_1b),
    Statement("Theorem 1", "Q_new ≥ Q_best", ("A1", "A2"), monotone_improvement),
    Statement("A1 as a distance", "KL(o‖n) ≥ KL(o‖b) + KL(b‖n)", ("A1",), a1_geometry),
    Statement("Theorem 1, exact", "Q_new = Q_best + exact gap", (), exact_improvement),
    Statement("Theorem 1, corrected", "Q_new ≥ Q_best", ("A2'",), monotone_improvement),
)

ASSUMPTIONS: dict[str, Callable[[GuidedUpdate], np.ndarray]] = {
    "A1": a1_holds,
    "A2": a2_holds,
    "A2'": corrected_a2_holds,
}


def assumed(update: GuidedUpdate, needs: tuple[str, ...]) -> np.ndarray:
    """Where all the named assumptions hold: (batch,) of bool."""
    holds = np.ones(update.mdp.num_mdps, dtype=bool)
    for name in needs:
        holds &= ASSUMPTIONS[name](update)
    return holds
