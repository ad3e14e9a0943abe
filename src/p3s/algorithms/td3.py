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

from p3s.algorithms.parts.deterministic import DeterministicActorCritic, TargetNoise


@dataclass(frozen=True, kw_only=True)
class TD3(TargetNoise, DeterministicActorCritic):
    """Twin delayed deep deterministic policy gradient."""

    name: ClassVar[str] = "td3"
