"""One guided update of one learner, with every quantity in Theorem 1.

    old   the learner's policy at the end of the last period
    best  the best learner's policy at that moment
    new   the minimizer of the augmented loss (policies.py)
    T     the threshold max{rho KL_max(new || old), d}
    Delta(s) = KL(new || best)(s) - T
    gap(s, a) = beta E_{best}[sum_{k >= 1} gamma^k Delta(s_k) | s_0 = s, a_0 = a]

Lemma 5's proof gives rho = 2 eps gamma C / (beta (1 - gamma)) and d = 2 eps gamma /
(beta (1 - gamma) C) with eps = max |A^new|, for any C > 0: one free constant, not two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from p3s.theory.mdp import (
    FiniteMDP,
    action_values,
    centered,
    discounted_sum,
    next_expected,
    state_values,
)
from p3s.theory.policies import guided_policy, kl, total_variation

TINY = 1e-300
"""Keeps the balanced constant C finite if the policy did not change."""


@dataclass(frozen=True)
class GuidedUpdate:
    """A batch of guided updates; policies are log-probabilities (batch, state, action)."""

    mdp: FiniteMDP
    beta: np.ndarray
    log_old: np.ndarray
    log_best: np.ndarray
    log_new: np.ndarray

    @cached_property
    def q_old(self) -> np.ndarray:
        """Q^{old}: (batch, state, action)."""
        return action_values(self.mdp, self.log_old)

    @cached_property
    def q_best(self) -> np.ndarray:
        """Q^{best}: (batch, state, action)."""
        return action_values(self.mdp, self.log_best)

    @cached_property
    def q_new(self) -> np.ndarray:
        """Q^{new}: (batch, state, action)."""
        return action_values(self.mdp, self.log_new)

    @cached_property
    def kl_new_best(self) -> np.ndarray:
        """KL(new || best) in each state: (batch, state)."""
        return kl(self.log_new, self.log_best)

    @cached_property
    def kl_best_new(self) -> np.ndarray:
        """KL(best || new) in each state: (batch, state)."""
        return kl(self.log_best, self.log_new)

    @cached_property
    def kl_max(self) -> np.ndarray:
        """KL_max(new || old), the largest over states: (batch,)."""
        return kl(self.log_new, self.log_old).max(axis=-1)

    @cached_property
    def alpha(self) -> np.ndarray:
        """The coupling of new and old: the largest total variation over states, (batch,)."""
        return total_variation(self.log_new, self.log_old).max(axis=-1)

    @cached_property
    def epsilon(self) -> np.ndarray:
        """max |A^{new}| over states and actions: (batch,)."""
        return np.abs(centered(self.log_new, self.q_new)).max(axis=(1, 2))


def guided_update(
    mdp: FiniteMDP,
    log_old: np.ndarray,
    log_best: np.ndarray,
    beta: float | np.ndarray,
    visited: np.ndarray | None = None,
) -> GuidedUpdate:
    """Minimize the augmented loss exactly; the old policy stays where `visited` is False."""
    beta = np.broadcast_to(np.asarray(beta, dtype=np.float64), (mdp.num_mdps,))
    log_new = guided_policy(log_best, action_values(mdp, log_old), beta)
    if visited is not None:
        log_new = np.where(visited[..., None], log_new, log_old)
    return GuidedUpdate(mdp, beta, log_old, log_best, log_new)


def lemma_5_constants(
    update: GuidedUpdate, balance: float | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rho and d that Lemma 5's proof derives, each (batch,); `balance` is its C.

    By default C = 1 / sqrt(KL_max), which makes max{rho KL_max, d} as small as the proof allows:
    if A2 holds for any C, it holds for this one.
    """
    if balance is None:
        balance = 1.0 / np.sqrt(np.maximum(update.kl_max, TINY))
    discount = update.mdp.discount
    scale = 2.0 * update.epsilon * discount / (update.beta * (1.0 - discount))
    return scale * balance, scale / balance


def threshold(
    update: GuidedUpdate, rho: float | np.ndarray | None = None, d: float | np.ndarray | None = None
) -> np.ndarray:
    """max{rho KL_max(new || old), d}: (batch,); by default with the constants of Lemma 5."""
    if rho is None or d is None:
        rho, d = lemma_5_constants(update)
    return np.maximum(rho * update.kl_max, d)


def smallest_threshold(update: GuidedUpdate) -> np.ndarray:
    """max(Q^new - Q^old) / beta, the smallest T for which Lemma 5 is true: (batch,)."""
    return (update.q_new - update.q_old).max(axis=(1, 2)) / update.beta


def delta(update: GuidedUpdate, level: np.ndarray) -> np.ndarray:
    """Delta(s) = KL(new || best)(s) - T for the threshold T = `level`: (batch, state)."""
    return update.kl_new_best - level[:, None]


def improvement_gap(update: GuidedUpdate, level: np.ndarray) -> np.ndarray:
    """beta E_best[sum_{k > t} gamma^{k-t} Delta(s_k)] by linear solve: (batch, state, action)."""
    ahead = discounted_sum(update.mdp, update.log_best, delta(update, level))
    factor = (update.beta * update.mdp.discount)[:, None, None]
    return factor * next_expected(update.mdp, ahead)


def improvement(update: GuidedUpdate) -> np.ndarray:
    """The true V^new - V^best: (batch, state)."""
    best = state_values(update.mdp, update.log_best)
    return state_values(update.mdp, update.log_new) - best
