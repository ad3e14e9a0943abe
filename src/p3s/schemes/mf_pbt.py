"""MF-PBT: groups that select at different periods (arXiv 2506.03225).

    every step: as in `pbt`
    at review i = 1, 2, ..., every group whose period divides i ranks its learners by the mean of
    their last E_r returns, in quarters: winners, survivors, open ones, losers
        exploit   the j-th of the losers takes everything of the j-th winner, and multiplies each
                  hyper-parameter by `perturbation` or by its inverse
        migrate   the open ones, best first, look at the best learner outside the group that none
                  of them has taken: if it is better, they take all of it but its hyper-parameters,
                      which are the migrant's if its group selects no more often than theirs,
                      and those of their group's best otherwise
                  else they stay, and the next one looks at the same learner

A group that selects often is greedy. One that selects seldom sees what hyper-parameters are good
for in the long run, and its values spread with its learners; values of a greedy group do not.

Whoever is copied is among the winners of its group, whom nothing overwrites. So the order of copies
does not matter. Learners share one replay, so migrants bring no data: all have it already.

Differs from the authors' code in: off-policy learners; ranks by training returns, not by an
evaluation; a group with a learner that has finished no episode since it was last replaced waits for
its next turn; learning rate, exploration noise and discount factor are perturbed, the latter as the
horizon (pbt.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s import chief
from p3s.errors import UserError
from p3s.fields.types import Bounds, Count
from p3s.schemes.base import Decision
from p3s.schemes.pbt import PBTState, WithPerturbation
from p3s.types import EnvSpec, Learner

QUARTERS = 4


class MFPBTState(NamedTuple):
    """The learners, their own hyper-parameters, and the reviews so far."""

    learners: Learner
    indices: jax.Array
    own_fields: dict[str, jax.Array]
    num_reviews: jax.Array


class Moves(NamedTuple):
    """What becomes of the learners; for each its own index where nothing does."""

    sources: list[int]
    """Whom each continues from."""
    values_from: list[int]
    """Whose hyper-parameters each has from then on."""
    migrations: list[list[int]]
    """Those of the copies that cross groups, [from, to]."""


def evolve(means: np.ndarray, periods: tuple[int, ...], review: int) -> Moves:
    """Who continues from whom after this review, counted from 1; learners lie group by group."""
    size = len(means) // len(periods)
    group_of = np.arange(len(means)) // size
    ranked = [int(i) for i in np.argsort(-means, kind="stable") if not np.isnan(means[i])]
    sources, values_from = list(range(len(means))), list(range(len(means)))
    migrations: list[list[int]] = []
    for group, period in enumerate(periods):
        own = [index for index in ranked if group_of[index] == group]
        if review % period or len(own) < size:
            continue
        quarter = size // QUARTERS
        winners, open_ones, losers = own[:quarter], own[2 * quarter : -quarter], own[-quarter:]
        for winner, loser in zip(winners, losers, strict=True):
            sources[loser] = values_from[loser] = winner
        others = [index for index in ranked if group_of[index] != group]
        for index in open_ones:
            if not others or means[others[0]] <= means[index]:
                continue
            migrant = others.pop(0)
            greedier = periods[group_of[migrant]] < period
            sources[index], values_from[index] = migrant, own[0] if greedier else migrant
            migrations.append([migrant, index])
    return Moves(sources, values_from, migrations)


@dataclass(frozen=True, kw_only=True)
class MFPBT(WithPerturbation):
    """PBT in groups that select at different periods, between which the best migrate."""

    name: ClassVar[str] = "mf_pbt"

    num_learners: Count = 8
    """Learners, each with its own environment copy (N), in groups of equal size."""
    group_periods: tuple[Count, ...] = (1, 10)
    """For each group the reviews between two of its selections."""
    perturbation: Annotated[float, Bounds(above=1)] = 1.25
    """Factor by which a taken-over hyper-parameter is multiplied or divided."""

    def problem(self) -> UserError | None:
        groups = len(self.group_periods)
        if groups < 2:
            message = f"scheme mf_pbt needs at least 2 groups (group_periods), not {groups}"
            return UserError(message, "group_periods")
        if self.num_learners % (QUARTERS * groups):
            return UserError(
                f"scheme mf_pbt cuts each of its {groups} groups into quarters: num_learners must "
                f"be a multiple of {QUARTERS * groups}, not {self.num_learners}",
                "num_learners",
            )
        return super().problem()

    def init(self, key: jax.Array, spec: EnvSpec) -> MFPBTState:
        begun: PBTState = super().init(key, spec)
        return MFPBTState(begun.learners, begun.indices, begun.own_fields, jnp.int32(0))

    def report(self, state: MFPBTState, observations: np.ndarray) -> dict[str, Any]:
        return {**super().report(state, observations), "num_reviews": state.num_reviews}

    def decide(
        self, report: dict[str, Any], recent_returns: np.ndarray, rng: np.random.Generator
    ) -> Decision:
        review = int(report["num_reviews"]) + 1
        means = chief.mean_returns(recent_returns)
        moves = evolve(means, self.group_periods, review)
        migrants = [index for _, index in moves.migrations]
        exploits = np.array(moves.sources) != np.arange(self.num_learners)
        exploits[migrants] = False
        own_fields = {
            name: self.perturbed_values(name, values[moves.values_from], exploits, rng)
            for name, values in report["own_fields"].items()
        }
        after = {"own_fields": own_fields, "num_reviews": np.int32(review)}
        about = {"review": review, "migrations": moves.migrations}
        return self.decision(self.best(recent_returns), moves.sources, after, about)
