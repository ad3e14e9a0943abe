"""Batches of finite Markov decision processes with exact values (Section 3.1).

    P_pi(s, s') = sum_a pi(a|s) p(s'|s, a)
    V^pi        = (I - gamma P_pi)^-1 r_pi           one linear solve per process, in float64
    Q^pi(s, a)  = r(s, a) + gamma sum_s' p(s'|s, a) V^pi(s')

The axis order is always batch, state, action, next state. A policy is an array of
log-probabilities (batch, state, action), so that tiny probabilities do not underflow. A terminal
state returns to itself with reward 0 under every action.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.errors import UserError


@dataclass(frozen=True)
class FiniteMDP:
    """A batch of finite processes of the same size."""

    transition: np.ndarray
    """p(s'|s, a): (batch, state, action, next state)."""
    reward: np.ndarray
    """r(s, a): (batch, state, action)."""
    discount: np.ndarray
    """gamma in [0, 1): (batch,)."""
    initial: np.ndarray
    """Distribution of the first state: (batch, state)."""

    @property
    def num_mdps(self) -> int:
        """Number of processes in the batch."""
        return self.reward.shape[0]

    @property
    def num_states(self) -> int:
        """Number of states in each process."""
        return self.reward.shape[1]

    @property
    def num_actions(self) -> int:
        """Number of actions in each state."""
        return self.reward.shape[2]

    def take(self, index: np.ndarray | slice) -> FiniteMDP:
        """The processes at these positions of the batch."""
        return FiniteMDP(
            self.transition[index], self.reward[index], self.discount[index], self.initial[index]
        )

    def repeat(self, count: int) -> FiniteMDP:
        """Every process `count` times in a row."""
        return FiniteMDP(
            *(np.repeat(part, count, axis=0) for part in (self.transition, self.reward)),
            *(np.repeat(part, count, axis=0) for part in (self.discount, self.initial)),
        )


def from_arrays(
    transition: np.ndarray,
    reward: np.ndarray,
    discount: float | np.ndarray,
    initial: np.ndarray | None = None,
) -> FiniteMDP:
    """A batch from arrays; arrays without a batch axis become a batch of one."""
    transition = np.asarray(transition, dtype=np.float64)
    reward = np.asarray(reward, dtype=np.float64)
    if reward.ndim == 2:
        transition, reward = transition[None], reward[None]
    if reward.ndim != 3 or transition.shape != (*reward.shape, reward.shape[1]):
        raise UserError(
            "transition must have shape (state, action, next state) and reward (state, action), "
            f"with or without a batch axis, not {transition.shape} and {reward.shape}"
        )
    num_mdps, num_states, _ = reward.shape
    discount = np.broadcast_to(np.asarray(discount, dtype=np.float64), (num_mdps,))
    if initial is None:
        initial = np.full(num_states, 1.0 / num_states)
    initial = np.broadcast_to(np.asarray(initial, dtype=np.float64), (num_mdps, num_states))
    if (discount < 0).any() or (discount >= 1).any():
        raise UserError(f"discount must be at least 0 and below 1, not {discount.tolist()}")
    for name, part in (("transition", transition), ("initial", initial)):
        if (part < 0).any() or not np.allclose(part.sum(axis=-1), 1.0, atol=1e-9):
            raise UserError(f"every row of {name} must hold probabilities that sum to 1")
    return FiniteMDP(transition, reward, discount, initial)


def expected(log_policy: np.ndarray, per_action: np.ndarray) -> np.ndarray:
    """E_{a ~ pi(.|s)} of a number per state and action: (batch, state)."""
    return (np.exp(log_policy) * per_action).sum(axis=-1)


def centered(log_policy: np.ndarray, per_action: np.ndarray) -> np.ndarray:
    """A number per state and action minus its mean under the policy; A^pi for Q^pi."""
    return per_action - expected(log_policy, per_action)[..., None]


def next_expected(mdp: FiniteMDP, per_state: np.ndarray) -> np.ndarray:
    """E_{s' ~ p(.|s, a)} of a number per state: (batch, state, action)."""
    return np.einsum("bsan,bn->bsa", mdp.transition, per_state)


def discounted_sum(mdp: FiniteMDP, log_policy: np.ndarray, per_state: np.ndarray) -> np.ndarray:
    """E_pi[sum_k gamma^k x(s_k)] from each state s_0, by linear solve: (batch, state)."""
    return np.linalg.solve(_system(mdp, log_policy), per_state[..., None])[..., 0]


def discounted_visits(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    """E_pi[sum_k gamma^k 1(s_k = s)] from the first state: (batch, state)."""
    system = _system(mdp, log_policy).swapaxes(1, 2)
    return np.linalg.solve(system, mdp.initial[..., None])[..., 0]


def _system(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    moves = np.einsum("bsa,bsan->bsn", np.exp(log_policy), mdp.transition)
    return np.eye(mdp.num_states) - mdp.discount[:, None, None] * moves


def state_values(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    """V^pi: (batch, state)."""
    return discounted_sum(mdp, log_policy, expected(log_policy, mdp.reward))


def action_values(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    """Q^pi: (batch, state, action)."""
    following = next_expected(mdp, state_values(mdp, log_policy))
    return mdp.reward + mdp.discount[:, None, None] * following


def advantages(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    """A^pi = Q^pi - V^pi: (batch, state, action)."""
    return centered(log_policy, action_values(mdp, log_policy))


def start_value(mdp: FiniteMDP, log_policy: np.ndarray) -> np.ndarray:
    """Expected return from the first state, by which a chief ranks learners: (batch,)."""
    return (mdp.initial * state_values(mdp, log_policy)).sum(axis=-1)


def sample_indices(cumulative: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample one index per row of cumulative probabilities along the last axis."""
    levels = rng.random(cumulative.shape[:-1])[..., None] * cumulative[..., -1:]
    return (cumulative <= levels).sum(axis=-1)
