"""A search distribution over policies: N(mean, diag(variance)), drawn from and fitted to the best.

What `cem` and `evorainbow` share. The distribution is over trained leaves; carried leaves come from
the best policy of a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.fields.types import Count, NonNegative, Share
from p3s.networks import projected
from p3s.schemes.base import EpisodeScheme
from p3s.trees import merge, pick, trained
from p3s.types import Params


def elite_weights(kind: Literal["equal", "log"], count: int) -> np.ndarray:
    """Weights of the elites, best first: all equal, or proportional to log((count + 1) / rank)."""
    weights = np.log((count + 1) / np.arange(1, count + 1)) if kind == "log" else np.ones(count)
    return (weights / weights.sum()).astype(np.float32)


def fit(
    mean: Params,
    elites: Params,
    weights: np.ndarray,
    estimate: Literal["plain", "cem_rl"],
    damping: jax.Array,
) -> tuple[Params, Params]:
    """Mean and variance of the elites (stacked, best first), and damping added to the variance.

    plain: about their own mean. cem_rl: about the old mean, over the number of elites. All of
    them trained leaves only.
    """
    new_mean = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), elites)
    about = new_mean if estimate == "plain" else mean
    divisor = 1 if estimate == "plain" else len(weights)
    variance = jax.tree.map(
        lambda leaf, center: jnp.tensordot(weights, (leaf - center) ** 2, 1) / divisor + damping,
        elites,
        about,
    )
    return new_mean, variance


def draw_policies(
    key: jax.Array, mean: Params, variance: Params, count: int, mirrored: bool
) -> Params:
    """`count` stacked draws of the distribution; mirrored: the second half mirrors the first.

    Trained leaves are drawn; every policy carries what the mean does.
    """
    leaves, structure = jax.tree.flatten(trained(mean))
    leaf_keys = jax.random.split(key, len(leaves))

    def draw(leaf_key: jax.Array, center: jax.Array, spread: jax.Array) -> jax.Array:
        independent = -(-count // 2) if mirrored else count
        noise = jax.random.normal(leaf_key, (independent, *center.shape), jnp.float32)
        noise = jnp.concatenate([noise, -noise])[:count] if mirrored else noise
        return center + jnp.sqrt(spread) * noise

    drawn = [draw(*each) for each in zip(leaf_keys, leaves, jax.tree.leaves(variance), strict=True)]
    carried = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), mean)
    return projected(merge(jax.tree.unflatten(structure, drawn), carried))


CEM_RL = {
    "elite_weights": "log",
    "variance_estimate": "cem_rl",
    "damping": 1e-3,
    "final_damping": 1e-5,
}
"""The distribution of CEM-RL's code."""


@dataclass(frozen=True, kw_only=True)
class SearchDistribution(EpisodeScheme):
    """Base of the schemes whose state has a `mean`, a `variance` and a `damping`."""

    num_elites: Count | Literal["half"] = "half"
    """Best policies of a round that the next distribution is made of."""
    sampling: Literal["independent", "mirrored"] = "independent"
    """Policies are drawn independently (paper), or in pairs mirrored at the mean (authors)."""
    elite_weights: Literal["equal", "log"] = "equal"
    """Elites count the same (paper), or by the logarithm of their rank (authors)."""
    variance_estimate: Literal["plain", "cem_rl"] = "plain"
    """Variance of the elites (paper), or their squares about the old mean over their number
    (authors)."""
    initial_variance: NonNegative = 1e-3
    """Variance of every parameter at the start."""
    damping: NonNegative = 0.0
    """What is added to the variance, before its first decay: nothing (paper), 1e-3 (authors)."""
    final_damping: NonNegative = 0.0
    """What is added to the variance in the end: nothing (paper), 1e-5 (authors)."""
    damping_decay: Share = 0.95
    """Share of the damping's excess over its end that is left after a round; it is decayed before
    it is added."""

    def problem(self) -> UserError | None:
        return self.more_than_all("num_elites", self._elites) or super().problem()

    def more_than_all(self, field: str, count: int) -> UserError | None:
        """What is wrong with this number of policies, or None."""
        if count <= self.num_learners:
            return None
        message = f"{field} must be at most the population, {self.num_learners}, not {count}"
        return UserError(message, field)

    @property
    def _elites(self) -> int:
        return max(self.num_learners // 2, 1) if self.num_elites == "half" else self.num_elites

    def start_variance(self, mean: Params) -> Params:
        """The variance at the start of a run."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.initial_variance), trained(mean))

    def draw(self, key: jax.Array, state: Any) -> Params:
        """The stacked policies of a round."""
        mirrored = self.sampling == "mirrored"
        return draw_policies(key, state.mean, state.variance, self.num_learners, mirrored)

    def refit(self, state: Any, elites: Params) -> Any:
        """The state with the distribution of the elites (stacked, best first)."""
        weights = elite_weights(self.elite_weights, self._elites)
        excess = state.damping - self.final_damping
        damping = self.final_damping + self.damping_decay * excess
        mean, variance = fit(
            trained(state.mean), trained(elites), weights, self.variance_estimate, damping
        )
        mean = projected(merge(mean, pick(elites, 0)))
        return state._replace(mean=mean, variance=variance, damping=damping)

    def spread(self, state: Any) -> dict[str, float]:
        """How wide the distribution is, for the lineage."""
        variances = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.variance)])
        return {"sigma": float(np.sqrt(variances.mean())), "damping": float(state.damping)}
