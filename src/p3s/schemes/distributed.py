"""Distributed RL, DRL (Section 4.2): one learner, N environment copies.

    every vector step: the one policy acts in N environment copies, with noise of its own in each,
                       and stores N transitions; then the learner updates N times

So it has as many updates as environment steps, like a single learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.schemes.base import StepScheme


@dataclass(frozen=True, kw_only=True)
class Distributed(StepScheme):
    """One learner acts in N environment copies."""

    name: ClassVar[str] = "distributed"
    paper_name: ClassVar[str] = "DRL, distributed RL (Section 4.2)"

    num_learners: int = 4
    """Environment copies of the one learner (N)."""
    updates_per_step: int | Literal["N"] = "N"
    """Updates of the learner per vector step: N, as many as there are environment copies."""

    @property
    def num_trained(self) -> int:
        return 1

    def act(self, acting: Any, observations: jax.Array, key: jax.Array, step: jax.Array) -> Any:
        copies = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_learners, *leaf.shape[1:])), acting
        )
        return super().act(copies, observations, key, step)

    def best(self, recent_returns: np.ndarray) -> int | None:
        return None if np.isnan(recent_returns).all() else 0
