"""The shared replay of tabular learners: counts of transitions, which define an empirical process.

    counts[s, a, s']                  from the episodes of all learners
    p^(s'|s, a) = counts / their sum  an untried action ends the episode with reward 0

Each learner plans on its own random half of the counts, which stands for its mini-batches. With the
whole replay, learners that were reset to the same policy would stay identical forever.
"""

from __future__ import annotations

import numpy as np

from p3s.theory.mdp import FiniteMDP, sample_indices
from p3s.theory.worlds import terminal_states


class Replay:
    """Transition counts of several runs on one process."""

    def __init__(self, mdp: FiniteMDP, num_runs: int, episodes: int, horizon: int) -> None:
        self.mdp, self.episodes, self.horizon = mdp, episodes, horizon
        self.counts = np.zeros((num_runs, *mdp.transition.shape[1:]), dtype=np.int64)
        self.ended = terminal_states(mdp)[0]
        self.moves = mdp.transition[0].cumsum(axis=-1)
        self.starts = mdp.initial[0].cumsum()

    def act(self, policies: np.ndarray, exploration: float, rng: np.random.Generator) -> np.ndarray:
        """Run and count one batch of episodes: discounted returns (run, learner, episode)."""
        num_runs, num_learners = policies.shape[:2]
        acting = (1 - exploration) * np.exp(policies) + exploration / policies.shape[-1]
        acting = acting.cumsum(axis=-1)
        shape = (num_runs, num_learners, self.episodes)
        run, learner = np.ogrid[:num_runs, :num_learners, :1][:2]
        states = sample_indices(np.broadcast_to(self.starts, (*shape, self.starts.size)), rng)
        total, weight = np.zeros(shape), 1.0
        for _ in range(self.horizon):
            alive = ~self.ended[states]
            if not alive.any():
                break
            actions = sample_indices(acting[run, learner, states], rng)
            following = sample_indices(self.moves[states, actions], rng)
            total += weight * self.mdp.reward[0][states, actions]
            place = (np.broadcast_to(run, shape), states, actions, following)
            np.add.at(self.counts, tuple(part[alive] for part in place), 1)
            weight *= self.mdp.discount[0]
            states = following
        return total

    def state_weights(self) -> np.ndarray:
        """The share of each state in the replay: (run, state)."""
        visits = self.counts.sum(axis=(2, 3)).astype(np.float64)
        return visits / np.maximum(visits.sum(axis=-1, keepdims=True), 1.0)

    def models(self, num_learners: int, rng: np.random.Generator) -> FiniteMDP:
        """The empirical process of each learner, from its own half: a batch of run x learner."""
        counts = np.repeat(self.counts, num_learners, axis=0)
        half = rng.binomial(counts, 0.5)
        tried = half.sum(axis=-1, keepdims=True)
        # A row of zeros leads nowhere, so the linear solve gives an untried action the value 0.
        transition = half / np.maximum(tried, 1)
        reward = np.where(tried[..., 0] > 0, self.mdp.reward[0], 0.0)
        copies = self.mdp.repeat(len(counts))
        return FiniteMDP(transition, reward, copies.discount, copies.initial)
