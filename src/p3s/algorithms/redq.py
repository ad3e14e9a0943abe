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
from p3s.fields.layers import Layer, by_family
from p3s.fields.types import Count, Critics
from p3s.networks import Initialization

MANY_UPDATES = {
    "updates_per_step": 20,
    "initial_steps": lambda setting: setting.own_steps(5000),
    "initialization": "xavier_joint",
    # Per action dimension; in total Hopper -1, HalfCheetah and Walker2d -3, Ant -4, Humanoid -2.
    "target_entropy": by_family(
        {"Hopper": -1 / 3, "HalfCheetah": -0.5, "Walker2d": -0.5, "Ant": -0.5, "Humanoid": -2 / 17}
    ),
}
"""Of REDQ's and DroQ's codes."""


@dataclass(frozen=True, kw_only=True)
class REDQ(SAC):
    """Soft actor-critic with an ensemble of Qs, of which two make a target."""

    name: ClassVar[str] = "redq"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", MANY_UPDATES),)

    num_critics: Critics = 10
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
