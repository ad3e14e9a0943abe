"""Where the statements stop being true: counterexamples, worked by hand or found by search.

Each `Claim` is something that the paper says or suggests, with the draws to which it should apply.
A draw with a clearly negative margin is a counterexample.

Differs from the authors in: the paper states none of these limits (docs/theory.md has the proofs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.theory.lemmas import (
    a1_holds,
    a1_margin,
    a2_holds,
    lemma_1,
    monotone_improvement,
    proposition_1,
    theorem_1a,
)
from p3s.theory.mdp import from_arrays, start_value, state_values
from p3s.theory.update import GuidedUpdate, guided_update, threshold

CLEARLY = 1e-6
"""A margin below minus this is a counterexample: rounding errors are far smaller."""
CHIEF_RHO, CHIEF_D_MIN = 2.0, 0.02
"""The paper's hyper-parameters rho and d_min, used instead of Lemma 5's constants."""


@dataclass(frozen=True)
class Claim:
    """A reading of the paper, the draws it applies to, and how far it is from failing there."""

    name: str
    applies: Callable[[GuidedUpdate], np.ndarray]
    margin: Callable[[GuidedUpdate], np.ndarray]


def invest_or_cash(beta: float = 0.3, discount: float = 0.9) -> GuidedUpdate:
    """Two states, two actions: A1 holds, A2 holds for rho = 0.02 and d = 0.05, yet Q^new < Q^best.

    In state 0, cash pays 0.3 and stays; invest leads to state 1. In state 1, waste pays 0 and
    harvest pays 1; both lead back. The old policy invests with probability 1/2 but harvests with
    1/10, so its Q prefers cash. The best policy also invests with 1/2, but harvests with 9/10. The
    new policy follows the old Q and invests less, which is a mistake for a policy that harvests.
    """
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 0] = transition[0, 1, 1] = 1.0
    transition[1, :, 0] = 1.0
    mdp = from_arrays(transition, np.array([[0.3, 0.0], [0.0, 1.0]]), discount)
    log_old = np.log([[[0.5, 0.5], [0.9, 0.1]]])
    log_best = np.log([[[0.5, 0.5], [0.1, 0.9]]])
    return guided_update(mdp, log_old, log_best, beta)


def rich_or_poor() -> GuidedUpdate:
    """Two states, three actions: A1 and A2 hold for rho = 2, d = 0.02, yet all of Q^new is worse.

    Working in the rich state pays 0.9 forever. The old policy mostly wastes time there, so its Q
    prefers the poor state, where resting pays 0.2. The best policy works, and one step of it is
    better than a step of the old policy (A1). The new policy trusts the old Q, goes to rest, and is
    far from the best (A2): farther than from the old one.
    """
    transition = np.zeros((2, 3, 2))
    transition[0, 0, 1] = transition[0, 1, 0] = transition[0, 2, 0] = 1.0  # leave, waste, work
    transition[1, 0, 1] = transition[1, 1, 0] = transition[1, 2, 1] = 1.0  # rest, return, waste
    mdp = from_arrays(transition, np.array([[0.4, -1.0, 0.9], [0.2, 0.8, -1.0]]), 0.9)
    log_old = np.log([[[0.3, 0.65, 0.05], [0.7, 0.05, 0.25]]])
    log_best = np.log([[[0.01, 0.01, 0.98], [0.01, 0.98, 0.01]]])
    return guided_update(mdp, log_old, log_best, 0.03)


def rare_best(probability: float, discount: float) -> GuidedUpdate:
    """One state in which A1 and A2 hold together up to a discount of 1/2.

    The limit is reached as the `probability` of the good action under old = best goes to 0, with
    the smallest threshold that Lemma 5 allows.
    """
    mdp = from_arrays(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), discount)
    log_best = np.array([[[np.log(probability), np.log1p(-probability)]]])
    rarity = -np.log(probability)
    return guided_update(mdp, log_best, log_best, 1.0 / (rarity + np.log(rarity)))


def some_threshold(update: GuidedUpdate) -> np.ndarray:
    """The largest T for which A2 holds: "for some rho, d > 0" taken literally."""
    return update.kl_new_best.min(axis=-1)


def dominates(update: GuidedUpdate) -> np.ndarray:
    """Where the best policy is at least as good as the old one in every state: (batch,) of bool."""
    best, old = (state_values(update.mdp, log) for log in (update.log_best, update.log_old))
    return (best - old).min(axis=-1) >= 0.0


def better_by_return(update: GuidedUpdate) -> np.ndarray:
    """Where the best policy has the higher expected return, which is what a chief measures."""
    best, old = (start_value(update.mdp, log) for log in (update.log_best, update.log_old))
    return np.greater(best, old)


def _chief_threshold(update: GuidedUpdate) -> np.ndarray:
    return threshold(update, CHIEF_RHO, CHIEF_D_MIN)


def _differs(update: GuidedUpdate) -> np.ndarray:
    return some_threshold(update) > 0.0


CHOICE_CLAIMS = (
    Claim("A1 for the best by return", better_by_return, a1_margin),
    Claim("A1 if V_best ≥ V_old in every state", dominates, a1_margin),
)
"""Claims about draws whose best policy was chosen by return."""

CLAIMS = (
    Claim("Lemma 1 without A1", lambda u: ~a1_holds(u), lambda u: lemma_1(u).margin),
    Claim("Proposition 1 without A1", lambda u: ~a1_holds(u), lambda u: proposition_1(u).margin),
    Claim(
        "Q_new ≥ Q_best with A1, without A2",
        lambda u: a1_holds(u) & ~a2_holds(u),
        lambda u: monotone_improvement(u).margin,
    ),
    Claim(
        "Q_new ≥ Q_best with A1, A2 for some ρ, d",
        lambda u: a1_holds(u) & _differs(u),
        lambda u: monotone_improvement(u).margin,
    ),
    Claim(
        "Theorem 1 (a) with A1, ρ = 2, d = 0.02",
        a1_holds,
        lambda u: theorem_1a(u, _chief_threshold(u)).margin,
    ),
    Claim(
        "Q_new ≥ Q_best, A1, A2, ρ = 2, d = 0.02",
        lambda u: a1_holds(u) & a2_holds(u, _chief_threshold(u)),
        lambda u: monotone_improvement(u).margin,
    ),
)
