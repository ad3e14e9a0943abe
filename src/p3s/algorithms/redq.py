"""REDQ, randomized ensembled double Q-learning (Chen et al. 2021): SAC with ten Qs.

    value step    a' ~ pi(s');  M a random pair of the ten Qs, drawn anew
                  y = r + discount * gamma * (min_{j in M} Q'_j(s', a') - alpha log pi(a'|s'))
                  minimize sum_j ½ mean (y - Q_j(s, a))²;  targets <- (1 - tau) targets + tau online
    policy step   at every 20th update: a ~ pi(s)
                  minimize mean(alpha log pi(a|s) - mean_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy)

This is SAC with other values of its fields. The presets add 20 updates per environment step, 5000
random steps and the target entropies of the original code.

Differs from the original code (watchernyu/REDQ) in: losses are ½ mean squares, a factor that Adam
does not notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from p3s.algorithms.sac import SAC
from p3s.field_types import Count, Critics
from p3s.networks import Initialization


@dataclass(frozen=True, kw_only=True)
class REDQ(SAC):
    """Soft actor-critic with an ensemble of Qs, of which two make a target."""

    name: ClassVar[str] = "redq"

    num_values: Critics = 10
    """Value networks."""
    subset_size: Count | None = 2
    """Value networks, drawn anew for every update, whose smallest estimate is the target; None:
    all of them."""
    policy_estimate: Literal["as_targets", "mean"] = "mean"
    """What the policy climbs: as targets do, or the mean of all value networks."""
    policy_period: Count = 20
    """Value updates per policy update."""
    initialization: Initialization = "xavier_joint"
    """Initial weights: Xavier with zero biases, by the fan-in of all inputs together (original
    code) or of each input (xavier), or U(±1/√fan_in)."""
