"""Learners whose parameters are no numbers any more: the run stops, or they are replaced.

    at a review, before an evaluation, and where an action is not finite
        found <- the learners with a parameter that is not finite
        stop:     the run ends with one line; the last checkpoint holds none of it
        replace:  each of them becomes a copy of the best of the others, its policy perturbed

Both happen at steps that follow from the run's configuration alone, never from how fast something
was, so a run with replacements resumes to the bit too. The others' parameters are not touched.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from p3s import chief, keys
from p3s.errors import TrainingStopped, note
from p3s.experience.returns import RecentReturns
from p3s.learning.counters import Counters
from p3s.learning.updater import Updater
from p3s.networks import projected
from p3s.schemes import Scheme
from p3s.trees import merge, trained

PERTURBATION = 0.02
"""Standard deviation of the noise on a copied policy, relative to each of its arrays."""


def diverged_learners(scheme: Scheme, state: Any) -> list[int]:
    """The learners with a parameter that is not finite."""
    count = jax.tree.leaves(getattr(state, scheme.stacked[0]))[0].shape[0]
    sound = np.ones(count, bool)
    for name in scheme.stacked:
        for leaf in map(np.asarray, jax.tree.leaves(getattr(state, name))):
            if np.issubdtype(leaf.dtype, np.floating):
                sound &= np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
    return np.flatnonzero(~sound).tolist()


def with_copy(
    scheme: Scheme, state: Any, learner: int, source: int, rng: np.random.Generator
) -> Any:
    """The state with a perturbed copy of one learner in another's place."""

    def copied(leaf: Any) -> np.ndarray:
        values = np.array(leaf)
        values[learner] = values[source]
        return values

    def perturbed(leaf: np.ndarray) -> np.ndarray:
        own = leaf[learner]
        scale = PERTURBATION * np.sqrt(np.mean(np.square(own)))
        leaf[learner] = own + scale * rng.standard_normal(own.shape).astype(own.dtype)
        return leaf

    # Its index stays: it is the same learner with other parameters.
    names = [name for name in scheme.stacked if name != "indices"]
    parts = {name: jax.tree.map(copied, getattr(state, name)) for name in names}
    state = state._replace(**parts)
    policies = scheme.algorithm.policy_of(state.learners)
    policies = projected(merge(jax.tree.map(perturbed, trained(policies)), policies))
    return state._replace(learners=scheme.algorithm.with_policy(state.learners, policies))


class DivergenceGuard:
    """Looks for learners that have diverged; `replaces` says what becomes of them."""

    def __init__(
        self,
        updater: Updater,
        returns: RecentReturns,
        counters: Counters,
        seed: int,
        replaces: bool,
    ) -> None:
        self._updater, self._returns, self._counters = updater, returns, counters
        self._seed, self.replaces = seed, replaces
        updater.metrics.stops = not replaces

    def check(self, also: list[int] | None = None) -> list[dict[str, Any]]:
        """Rows for the lineage about learners that were replaced; or stop the run.

        also: learners known to have diverged, whatever their parameters.
        """
        updater = self._updater
        found = sorted({*diverged_learners(updater.scheme, updater.state), *(also or ())})
        if not found:
            return []
        if not self.replaces:
            raise TrainingStopped(f"the parameters of learner {found[0]} are not finite")
        if len(found) == updater.scheme.num_trained:
            raise TrainingStopped("the parameters of all learners are not finite")
        source = self._best_of_others(found)
        for learner in found:
            rng = keys.generator(self._seed, "replacement", self._counters.time_step, learner)
            state = with_copy(updater.scheme, updater.state, learner, source, rng)
            updater.state = updater.program.place(state)
            note(
                f"learner {learner} diverged at total step {self._counters.total_steps:,}: "
                f"replaced by a perturbed copy of learner {source}"
            )
        self._returns.forget(found)
        return [{"step": self._counters.total_steps, "replaced": found, "source": source}]

    def sound_actions(
        self, actions: Any, observations: np.ndarray
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Actions that are finite, and rows for the lineage, if learners may be replaced."""
        if not self.replaces or np.isfinite(actions := jax.device_get(actions)).all():
            return actions, []
        also = np.flatnonzero(~np.isfinite(actions).all(axis=1)).tolist()
        rows = self.check(also)
        return self._updater.actions(observations), rows

    def _best_of_others(self, found: list[int]) -> int:
        """The best learner that has not diverged; the first one if none has finished an episode."""
        values = self._returns.values.copy()
        values[found] = np.nan
        best = chief.best_learner(values)
        others = (index for index in range(len(values)) if index not in found)
        return next(others) if best is None else best
