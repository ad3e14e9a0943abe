"""P3S with another guide than the best learner: what of its gain is the choice, and what the pull?

    p3s --import benchmarks.guide_controls study run results/guide-controls.toml
    p3s study export studies/guide-controls -o results/guide-controls.parquet
    python benchmarks/selection.py results/guide-controls.parquet

    random_guide    the chief picks a learner at random, and everything else is P3S
    average_guide   every learner is pulled, towards the average of all weights

Both pull as hard as P3S does, by the same rule. They are controls, not methods to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief, register
from p3s.schemes.base import Decision
from p3s.schemes.p3s import NOBODY, P3S, P3SState
from p3s.types import Params


@register
@dataclass(frozen=True, kw_only=True)
class RandomGuide(P3S):
    """P3S whose guide is any learner."""

    name: ClassVar[str] = "random_guide"

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        if np.isnan(recent_returns).all():
            return super().decide(report, recent_returns, rng)
        picked = np.full((self.num_learners, 1), -np.inf)
        picked[rng.integers(self.num_learners)] = 0.0
        return super().decide(report, picked, rng)


@register
@dataclass(frozen=True, kw_only=True)
class AverageGuide(P3S):
    """P3S whose guide is the average of all policies, and pulls all of them."""

    name: ClassVar[str] = "average_guide"
    can_be_split: ClassVar[bool] = False

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        everybody = {**report, "best": np.int32(NOBODY)}  # nobody is left out
        own, beta = super().decide(everybody, recent_returns, rng), float(report["beta"])
        if int(report["best"]) == self.num_learners:
            spread, change = (float(report[name].mean()) for name in ("spreads", "changes"))
            beta = chief.adapt_beta(beta, spread, change, self.rho, self.d_min, self.beta_limit)
        sources = range(self.num_learners) if own.sources else ()
        return Decision({**own.row, "beta": beta}, tuple(sources))

    def apply(self, state: P3SState, decision: Decision, offers: dict[int, Params]) -> P3SState:
        state = super().apply(state, decision, offers)
        if not offers:
            return state
        average = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *offers.values())
        # No learner has this index, so all are pulled.
        return state._replace(guide=average, best=jnp.full_like(state.best, self.num_learners))
