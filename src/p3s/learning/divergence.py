"""Learners with non-finite parameters: the run stops, or they are replaced.

    at a review and before an evaluation
        found <- the learners with a parameter or an action that is not finite
        stop:     the run ends with one line; the last checkpoint holds none of it
        replace:  each of them becomes a copy of the best of the others, its policy perturbed

Until it is replaced, such a learner acts at random. All of this happens at steps that follow from
the run's configuration alone, never from how fast something was, so a run with replacements resumes
to the bit too. The others' parameters are not touched.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from p3s import chief
from p3s.errors import TrainingStopped
from p3s.networks import projected
from p3s.schemes import Scheme
from p3s.trees import merge, pick, trained

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


def parts_of(scheme: Scheme, state: Any, place: int) -> dict[str, Any]:
    """Everything that a learner is, on the host; its index is not: that stays where it is."""
    names = [name for name in scheme.stacked if name != "indices"]
    return {name: jax.device_get(pick(getattr(state, name), place)) for name in names}


def with_copy(
    scheme: Scheme, state: Any, place: int, parts: dict[str, Any], rng: np.random.Generator
) -> Any:
    """The state with a perturbed copy of a learner in this place."""

    def copied(leaf: Any, own: Any) -> np.ndarray:
        values = np.array(leaf)
        values[place] = own
        return values

    def perturbed(leaf: np.ndarray) -> np.ndarray:
        own = leaf[place]
        scale = PERTURBATION * np.sqrt(np.mean(np.square(own)))
        leaf[place] = own + scale * rng.standard_normal(own.shape).astype(own.dtype)
        return leaf

    copies = {name: jax.tree.map(copied, getattr(state, name), own) for name, own in parts.items()}
    state = state._replace(**copies)
    policies = scheme.algorithm.policy_of(state.learners)
    policies = projected(merge(jax.tree.map(perturbed, trained(policies)), policies))
    return state._replace(learners=scheme.algorithm.with_policy(state.learners, policies))


def source_for(found: list[int], recent_returns: np.ndarray) -> int:
    """The best learner that has not diverged; the first one if none has finished an episode."""
    if len(found) == len(recent_returns):
        raise TrainingStopped("the parameters of all learners are not finite")
    values = recent_returns.copy()
    values[found] = np.nan
    best = chief.best_learner(values)
    others = (index for index in range(len(values)) if index not in found)
    return next(others) if best is None else best
