"""Distributed RL, DRL (Section 4.2): one learner, N environment copies.

    every vector step: the one policy acts in N environment copies, with separate noise in each,
                       and stores N transitions; then the learner updates N times

So it has as many updates as environment steps, like a single learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.fields.layers import Layer, all_updates
from p3s.fields.types import Count, Ratio
from p3s.schemes.base import StepScheme


@dataclass(frozen=True, kw_only=True)
class Distributed(StepScheme):
    """One learner acts in N environment copies."""

    name: ClassVar[str] = "distributed"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("", {"updates_per_step": all_updates}),)

    can_be_split: ClassVar[bool] = False
    # A class variable is not a field: there is always one learner.
    num_learners: ClassVar[int] = 1  # type: ignore[reportIncompatibleVariableOverride]

    num_copies: Count = 4
    """Environment copies of the one learner (N)."""
    updates_per_step: Count | Ratio | Literal["N"] = "N"
    """Updates of the learner per vector step: N, the number of environment copies."""

    @property
    def num_envs(self) -> int:
        return self.num_copies

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        policies, _ = acting
        copies = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_copies, *leaf.shape[1:])), policies
        )
        return super().act((copies, jnp.arange(self.num_copies)), observations, key, step)

    def best(self, recent_returns: np.ndarray) -> int | None:
        return None if np.isnan(recent_returns).all() else 0
