"""TD3, twin delayed deep deterministic policy gradient (Appendix G).

    value step    a' = clip(pi'(s') + clip(N(0, s~²), -c, c), -1, 1)
                  y  = r + discount * gamma * min_j Q'_j(s', a')
                  minimize sum_j mean (y - Q_j(s, a))²
    policy step   minimize mean(-Q_1(s, pi(s)) + weight * D(pi(s), guide(s)))      (Appendix H)
                  targets <- (1 - tau) targets + tau online

Where the authors' P3S code departs from the text, a field names it: `distance_reduction`,
`targets_start` and `initialization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from p3s.algorithms.parts.deterministic import DeterministicActorCritic
from p3s.field_types import NonNegative


@dataclass(frozen=True, kw_only=True)
class TD3(DeterministicActorCritic):
    """Twin delayed deep deterministic policy gradient."""

    name: ClassVar[str] = "td3"

    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on target actions (σ~)."""
    target_noise_clip: NonNegative = 0.5
    """Bound of the noise on target actions (c)."""

    def draw_target_noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        noise = self.target_noise * jax.random.normal(key, shape, jnp.float32)
        return jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)
