"""TD3, twin delayed deep deterministic policy gradient (Appendix G).

    value step    a' = clip(pi'(s') + clip(N(0, s~²), -c, c), -1, 1)
                  y  = r + discount * gamma * min_j Q'_j(s', a')
                  minimise sum_j mean (y - Q_j(s, a))²
    policy step   minimise mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))      (Appendix H)
                  targets <- (1 - tau) targets + tau online

Differs from the authors' P3S code in nothing that a field does not name: `distance_reduction`,
`targets_start` and `initialization` are the places where that code departs from the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.off_policy import value_loss
from p3s.algorithms.parts.deterministic import (
    DeterministicActorCritic,
    policy_loss,
    squared_distance,
    td_target,
)

__all__ = ["TD3", "policy_loss", "squared_distance", "td_target", "value_loss"]


@dataclass(frozen=True, kw_only=True)
class TD3(DeterministicActorCritic):
    """Twin delayed deep deterministic policy gradient."""

    name: ClassVar[str] = "td3"
    num_values: ClassVar[int] = 2

    target_noise: float = 0.2
    """Standard deviation of the noise on target actions (σ~)."""
    target_noise_clip: float = 0.5
    """Bound of the noise on target actions (c)."""

    def problem(self) -> str | None:
        for field in ("target_noise", "target_noise_clip"):
            if getattr(self, field) < 0:
                return f"{field} must be at least 0, not {getattr(self, field)}"
        return super().problem()

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        noise = self.target_noise * jax.random.normal(key, shape, jnp.float32)
        return jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)
