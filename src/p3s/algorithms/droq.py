"""DroQ, dropout Q-functions (Hiraoka et al. 2022): SAC with dropout and layer norm in its Qs.

    Q             dense -> dropout -> layer norm -> relu, for every hidden layer
    value step    a' ~ pi(s')
                  y = r + discount * gamma * (min_j Q'_j(s', a') - alpha log pi(a'|s'))
                  minimize sum_j ½ mean (y - Q_j(s, a))²;  targets <- (1 - tau) targets + tau online
    policy step   at every 20th update: a ~ pi(s)
                  minimize mean(alpha log pi(a|s) - mean_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  minimize log alpha * (entropy of pi - target entropy)

Dropout is on in all three: Q', Q and the policy's Q. It does the work of REDQ's ensemble with a
fifth of its networks. This is SAC with other values of its fields. The presets add 20 updates per
environment step, 5000 random steps and REDQ's target entropies.

Differs from the original code in: one dropout rate, 0.01, where that code has one per environment
(Hopper 1e-4, Walker2d 5e-3, Ant 1e-2, Humanoid 1e-1); losses are ½ mean squares, a factor that Adam
does not notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from p3s.algorithms.redq import MANY_UPDATES
from p3s.algorithms.sac import SAC
from p3s.fields.layers import Layer
from p3s.fields.types import Count, Decay
from p3s.networks import Initialization


@dataclass(frozen=True, kw_only=True)
class DroQ(SAC):
    """Soft actor-critic with dropout and layer normalization in its Qs."""

    name: ClassVar[str] = "droq"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", MANY_UPDATES),)

    dropout: Decay | None = 0.01
    """Share of units that the value networks leave out at random in updates; None: no dropout."""
    layer_norm: bool = True
    """Normalize the inputs of every activation of the value networks."""
    policy_layer_norm: bool | None = False
    """Normalize the inputs of the policy's activations; None: `layer_norm`."""
    policy_estimate: Literal["as_targets", "mean"] = "mean"
    """What the policy climbs: as targets do, or the mean of all value networks."""
    policy_period: Count = 20
    """Value updates per policy update."""
    initialization: Initialization = "xavier_joint"
    """Initial weights: Xavier with zero biases, by the fan-in of all inputs together (REDQ's
    code) or of each input (xavier), or U(±1/√fan_in)."""
