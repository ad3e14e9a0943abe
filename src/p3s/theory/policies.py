"""Policies as log-probabilities, their distances, and the minimizer of the augmented loss (eq. 3).

    L~(pi)       = E_{s ~ D}[ E_{a ~ pi}[ -Q^{old}(s, a) ] + beta KL(pi(.|s) || pi_b(.|s)) ]
    pi_new(a|s)  proportional to  pi_b(a|s) exp(Q^{old}(s, a) / beta)        wherever D(s) > 0

The loss is a sum of one term per state, which depends on pi(.|s) alone. Its minimizer therefore
does not depend on D, as long as D gives every state some weight. In a state without weight the
loss leaves pi free.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp


def normalize(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of a softmax over the last axis."""
    return logits - logsumexp(logits, axis=-1, keepdims=True)


def tilt(log_policy: np.ndarray, per_action: np.ndarray) -> np.ndarray:
    """The policy proportional to pi(a|s) exp(x(s, a))."""
    return normalize(log_policy + per_action)


def guided_policy(log_best: np.ndarray, values: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The exact minimizer of the augmented loss: pi_b exp(Q / beta), normalized."""
    # The shift cancels in exact arithmetic; it keeps precision when beta is small.
    shifted = values - values.max(axis=-1, keepdims=True)
    return tilt(log_best, shifted / np.asarray(beta)[..., None, None])


def kl(log_policy: np.ndarray, log_other: np.ndarray) -> np.ndarray:
    """KL(pi(.|s) || other(.|s)), precise even where the policies nearly agree: (batch, state)."""
    policy, other = np.exp(log_policy), np.exp(log_other)
    possible = policy > 0
    with np.errstate(invalid="ignore"):
        gap = np.where(possible, log_policy - log_other, 0.0)
    # Each term is p log(p/q) - p + q >= 0; expm1 avoids cancellation near p = q.
    near = np.abs(gap) < 0.5
    close = policy * (np.where(near, gap, 0.0) + np.expm1(-np.where(near, gap, 0.0)))
    far = np.where(possible, policy * np.where(near, 0.0, gap), 0.0) - policy + other
    return np.where(near & possible, close, far).sum(axis=-1)


def total_variation(log_policy: np.ndarray, log_other: np.ndarray) -> np.ndarray:
    """Half the L1 distance between pi(.|s) and other(.|s): (batch, state)."""
    return 0.5 * np.abs(np.exp(log_policy) - np.exp(log_other)).sum(axis=-1)
