"""Tabular P3S: softmax learners with exact or sampled Q, and the chief of chief.py (Section 3).

    every period
        act     returns of every learner: exact, or from episodes that fill the shared replay
        review  b <- best by return; beta <- eq. 6 from spread and change    (p3s.chief)
        learn   pi_i <- argmin over pi of  E_pi[-Q^{pi_i}] + inertia KL(pi || pi_i)
                                           + beta KL(pi || pi_b) for i != b

The inertia slows the base learner down: without a guide, its update is the mirror-descent step
pi exp(Q / inertia). With inertia 0, a guided learner takes Theorem 1's exact minimizer.
    single     one learner with the acting budget of all
    sharing    learners that share only the replay (independent ones if Q is exact)
    resetting  sharing, but every `reset_period` periods all learners copy the best

Differs from the authors in: sampled Q is exact for the empirical process of the replay, and each
learner sees its own random half of the replay, which stands for its mini-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.chief import adapt_beta, best_learner, mean_over_others, search_radius
from p3s.errors import unknown
from p3s.theory.lemmas import a1_holds, a2_holds
from p3s.theory.mdp import FiniteMDP, action_values, discounted_visits, start_value
from p3s.theory.policies import kl, normalize
from p3s.theory.replay import Replay
from p3s.theory.update import GuidedUpdate
from p3s.theory.worlds import terminal_states

SCHEMES = ("p3s", "resetting", "sharing", "single")
BETA_LIMIT = 1000.0
"""Beta doubles only below this limit and halves only above its inverse, as in the authors' code."""


@dataclass(frozen=True)
class Tabular:
    """Options of a tabular population and its learning."""

    scheme: str = "p3s"
    """p3s, resetting, sharing or single."""
    num_learners: int = 4
    """Learners in the population; `single` has one learner with the episodes of all."""
    num_periods: int = 60
    """Number of periods."""
    num_runs: int = 20
    """Independent runs, computed in one batch."""
    sampled: bool = False
    """Learn from episodes and a shared replay instead of exact values."""
    inertia: float = 0.3
    """How strongly a learner holds on to its own policy: mirror descent with step 1 / inertia."""
    guided_inertia: float = 0.3
    """Inertia of a guided learner; 0 gives the exact minimizer of the augmented loss."""
    beta: float = 1.0
    """Initial weight of the pull toward the best."""
    rho: float = 2.0
    """Search radius per policy change (eq. 6)."""
    d_min: float = 0.02
    """Smallest search radius (eq. 6)."""
    adapt: bool = True
    """Whether the chief adapts beta."""
    reset_period: int = 5
    """Periods between two resets to the best (resetting)."""
    init_scale: float = 1.0
    """Standard deviation of the initial logits."""
    episodes: int = 2
    """Episodes per learner and period (sampled)."""
    horizon: int = 60
    """Longest episode (sampled)."""
    exploration: float = 0.1
    """Share of uniformly random actions while acting (sampled)."""
    seed: int = 0
    """Seed of the initial policies and of all sampling."""


@dataclass(frozen=True)
class History:
    """The course of all runs, period by period; NaN where there was nothing to measure."""

    values: np.ndarray
    """Exact value of every learner from the start: (period, run, learner)."""
    best: np.ndarray
    """The learner that the chief chose: (period, run)."""
    beta: np.ndarray
    """Weight of the pull: (period, run)."""
    spread: np.ndarray
    """Mean KL of the guided learners to their guide, D_spread: (period, run)."""
    radius: np.ndarray
    """The search radius max(rho D_change, d_min): (period, run)."""
    assumed: np.ndarray
    """Where A1 and A2 held for the following update: (period, run, learner).

    Theorem 1 is about exact minimizers, so it applies only with `guided_inertia` 0."""


def run_tabular(mdp: FiniteMDP, options: Tabular) -> History:
    """Train `num_runs` populations on one process."""
    if options.scheme not in SCHEMES:
        raise unknown("tabular scheme", options.scheme, SCHEMES)
    population = _Population(mdp, options)
    records = [population.period(number) for number in range(options.num_periods)]
    return History(*(np.stack(parts) for parts in zip(*records, strict=True)))


class _Population:
    """The state of `run_tabular`: policies (run, learner, state, action), guides and beta."""

    def __init__(self, mdp: FiniteMDP, options: Tabular) -> None:
        self.mdp, self.options = mdp, options
        self.rng = np.random.default_rng(options.seed)
        self.num_learners = 1 if options.scheme == "single" else options.num_learners
        self.shape = (options.num_runs, self.num_learners, mdp.num_states, mdp.num_actions)
        # Draw the initial policies of all learners, so that every scheme starts from the same ones.
        drawn = (self.shape[0], options.num_learners, *self.shape[2:])
        logits = options.init_scale * self.rng.standard_normal(drawn)
        self.policies = normalize(logits[:, : self.num_learners])
        self.previous, self.guide = self.policies, self.policies[:, 0]
        self.guide_index = np.full(options.num_runs, -1)
        self.beta = np.full(options.num_runs, options.beta)
        self.copies = mdp.repeat(options.num_runs * self.num_learners)
        scale = options.num_learners // self.num_learners
        self.replay = Replay(mdp, options.num_runs, options.episodes * scale, options.horizon)

    def flat(self, policies: np.ndarray) -> np.ndarray:
        """Policies with run and learner as one batch axis."""
        return policies.reshape(-1, *self.shape[2:])

    def period(self, number: int) -> tuple[np.ndarray, ...]:
        """Act, review and learn; returns one row for every array of the history."""
        values = start_value(self.copies, self.flat(self.policies)).reshape(self.shape[:2])
        returns = values[..., None]
        if self.options.sampled:
            returns = self.replay.act(self.policies, self.options.exploration, self.rng)
        spread, radius = self.review(returns)
        if self.options.scheme == "resetting" and number % self.options.reset_period == 0:
            self.policies = np.repeat(self.guide[:, None], self.num_learners, axis=1)
        held = self.learn()
        return values, self.guide_index.copy(), self.beta.copy(), spread, radius, held

    def review(self, returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chief's review of each run: measure distances, adapt beta, choose the best."""
        options, weights = self.options, self.state_weights()
        to_guide = kl(self.policies, self.guide[:, None]) @ weights[..., None]
        to_previous = kl(self.policies, self.previous) @ weights[..., None]
        spreads, radii = np.full(options.num_runs, np.nan), np.full(options.num_runs, np.nan)
        for run in range(options.num_runs):
            if options.scheme == "p3s" and self.guide_index[run] >= 0:
                distances = (to_guide[run, :, 0], to_previous[run, :, 0])
                spreads[run], radii[run] = self.adapt(run, *distances)
            chosen = best_learner(returns[run])
            self.guide_index[run] = 0 if chosen is None else chosen
        self.guide = self.policies[np.arange(options.num_runs), self.guide_index]
        return spreads, radii

    def adapt(self, run: int, to_guide: np.ndarray, to_previous: np.ndarray) -> tuple[float, float]:
        """Apply eq. 6 to one run, given all learners' distances: D_spread and the radius."""
        options, left_out = self.options, int(self.guide_index[run])
        spread = mean_over_others(to_guide, left_out)
        change = mean_over_others(to_previous, left_out)
        if spread is None or change is None:
            return np.nan, np.nan
        if options.adapt:
            rule = (options.rho, options.d_min, BETA_LIMIT)
            self.beta[run] = adapt_beta(self.beta[run], spread, change, *rule)
        return spread, search_radius(change, options.rho, options.d_min)

    def state_weights(self) -> np.ndarray:
        """The weight of each state in the distances, as in a replay: (run, state)."""
        if self.options.sampled:
            return self.replay.state_weights()
        visits = discounted_visits(self.copies, self.flat(self.policies))
        visits = visits.reshape(self.shape[:3]).mean(axis=1) * ~terminal_states(self.mdp)
        return visits / visits.sum(axis=-1, keepdims=True)

    def learn(self) -> np.ndarray:
        """One policy step of every learner; returns where A1 and A2 held: (run, learner)."""
        options, policies = self.options, self.policies
        model = self.copies
        if options.sampled:
            model = self.replay.models(self.num_learners, self.rng)
        q = action_values(model, self.flat(policies)).reshape(self.shape)
        guided = np.arange(self.num_learners) != self.guide_index[:, None]
        guided &= options.scheme == "p3s"
        weight = np.where(guided, self.beta[:, None], 0.0)[..., None, None]
        inertia = np.where(guided, options.guided_inertia, options.inertia)[..., None, None]
        pulled = q + weight * self.guide[:, None] + inertia * policies
        self.previous, self.policies = policies, normalize(pulled / (weight + inertia))
        return self.assumptions() & guided

    def assumptions(self) -> np.ndarray:
        """Where A1 and A2 (Lemma 5's constants) held for the step just taken: (run, learner)."""
        guide = np.broadcast_to(self.guide[:, None], self.shape)
        beta = np.repeat(self.beta, self.num_learners)
        parts = (self.flat(part) for part in (self.previous, guide, self.policies))
        update = GuidedUpdate(self.copies, beta, *parts)
        return (a1_holds(update) & a2_holds(update)).reshape(self.shape[:2])


def best_values(history: History) -> np.ndarray:
    """Exact value of the best learner in each period: (period, run)."""
    return history.values.max(axis=-1)


def optimal_value(mdp: FiniteMDP) -> np.ndarray:
    """The value of an optimal policy from the start, by policy iteration: (batch,)."""
    log_policy = normalize(np.zeros(mdp.reward.shape))
    for _ in range(mdp.num_states * mdp.num_actions):
        greedy = action_values(mdp, log_policy).argmax(axis=-1)
        with np.errstate(divide="ignore"):
            log_policy = np.log(np.eye(mdp.num_actions)[greedy])
    return start_value(mdp, log_policy)


def sampling_tolerance(mdp: FiniteMDP, error: np.ndarray) -> np.ndarray:
    """How far V^new can fall below V^best under A1 and A2 if Q is wrong by at most `error`.

    Lemma 1 and step (b) of Proposition 2 each lose 2 error. Proposition 1 then loses
    2 error gamma / (1 - gamma), and Proposition 2 loses 2 error / (1 - gamma). The sum of
    Proposition 2 along the path of the best policy gives 2 error / (1 - gamma)^2.
    """
    return 2.0 * error / (1.0 - mdp.discount) ** 2
