"""Experience-sharing only, ESO (Section 4.2): N learners, one replay, nothing else in common.

    every step: each learner acts in its own environment copy, stores into the common replay,
                and updates on its own minibatch from it

This is P3S without guidance, exactly: it runs the same compiled update with a pull of weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from p3s.learners import pick, update_learners
from p3s.schemes.base import Scheme
from p3s.types import Guide, Metrics, Transition


@dataclass(frozen=True, kw_only=True)
class Sharing(Scheme):
    """Experience sharing only (ESO)."""

    name: ClassVar[str] = "sharing"

    def learn(
        self, state: Any, batches: Transition, key: jax.Array, with_policy: bool
    ) -> tuple[Any, Metrics]:
        nobody = Guide(pick(self.policies(state), 0), jnp.zeros(self.num_learners, jnp.float32))
        learners, metrics = update_learners(
            self.algorithm, state.learners, batches, nobody, key, with_policy
        )
        return state._replace(learners=learners), metrics
