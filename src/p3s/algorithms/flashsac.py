"""FlashSAC (arXiv 2604.04539): SAC with bounded weights, features and returns.

This is XQC (`xqc.py`) with residual networks (`networks/residual_norm.py`) and noise that is held:

    value step    XQC's, with the mean over the value networks in place of the sum
    policy step   at every second update: a ~ pi(s), from a pass in training mode over [s; s']
                  minimize mean(alpha log pi(a|s) - min_j Q_j(s, a)) + weight * D(pi, guide)
                  with Q in evaluation mode;  minimize alpha * (entropy of pi - target entropy)
    acting        a = tanh(mean + std * noise), with the same noise for n steps;
                  then another noise and another n, drawn in proportion to 1/n²

log std = -10 + 6 (1 + tanh(output)). The target entropy is that of a normal with a std of 0.15.
Rewards are divided by the larger of the discounted return's standard deviation and its largest size
over the limit of the bins, so that every return fits (`experience/reward_scale.py`). Adam's step
size falls by half along a cosine; each optimizer counts its own steps.

Differs from the authors' code (Holiday-Robot/FlashSAC) in: the value step precedes the policy's;
noise is drawn anew at every 256th step whatever n is; a discounted return ends with its episode,
where theirs takes the last step's reward over into the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from p3s.algorithms.xqc import XQC, BinnedTarget
from p3s.fields.layers import Layer
from p3s.fields.types import Count, Share, Sizes
from p3s.types import Learner, Params, Transition

WINDOW = 256
"""Steps after which noise is drawn anew whatever came before: so which noise acts at a step follows
from the step alone."""
HOLDING = 2**31 - 1
"""Stands for the lengths among the keys of steps."""


def held_since(key: jax.Array, step: jax.Array, longest: int) -> jax.Array:
    """The step at which the noise of this step was drawn."""
    window, place = step // WINDOW, step % WINDOW
    numbers = np.arange(1, longest + 1)
    chances = jnp.asarray(-2.0 * np.log(numbers), jnp.float32)
    own_key = jax.random.fold_in(jax.random.fold_in(key, HOLDING), window)
    lengths = 1 + jax.random.categorical(own_key, chances, shape=(WINDOW,))
    starts = jnp.cumsum(lengths) - lengths
    latest = jnp.max(jnp.where(starts <= place, starts, 0))
    return (window * WINDOW + latest).astype(jnp.int32)


CODE = {
    "initial_steps": lambda setting: setting.own_steps(10_000),
    "initialization": "orthogonal",
}


@dataclass(frozen=True, kw_only=True)
class FlashSAC(XQC):
    """Soft actor-critic with residual networks, binned returns and held noise."""

    name: ClassVar[str] = "flashsac"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", CODE),)
    falls_along: ClassVar[Literal["linear", "cosine"]] = "cosine"

    hidden_sizes: Sizes = (256, 256)
    """Widths of the residual blocks of every network, all alike."""
    policy_hidden_sizes: Sizes | None = (128, 128)
    """Widths of the policy's residual blocks; None: `hidden_sizes`."""
    batch_size: Count = 512
    """Transitions in a minibatch (B)."""
    policy_period: Count = 2
    """Value updates per policy update."""
    network: str = "residual_norm"
    """residual_norm: residual blocks of unit weights with batch normalization."""
    target_rate: Share = 0.01
    """How fast targets follow (τ)."""
    target_entropy: float = -0.4782
    """Entropy that the temperature aims at, per action dimension: ½ ln(2πe · 0.15²)."""
    distance: Literal["kl", "action"] = "action"
    """How far two policies are apart, for guidance: half the mean squared distance of their
    noiseless actions (action), or KL (kl), which is huge where a std may fall to e⁻¹⁰."""
    learning_rate_end: Share = 0.5
    """Share of every step size that is left in the end, where it is a number and no schedule."""
    noise_repeat: Count = 16
    """Most steps for which exploration noise is held; n of them with a chance in proportion to
    1/n². 1: new noise at every step."""

    @property
    def return_limit(self) -> float | None:
        return self.value_limit

    def noise_step(self, key: jax.Array, step: jax.Array) -> jax.Array:
        return held_since(key, step, self.noise_repeat)

    def value_loss(
        self, values: Params, batch: Transition, target: BinnedTarget, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        loss, rest = super().value_loss(values, batch, target, key)
        return loss / self.num_critics, rest

    def further_observations(self, batch: Transition) -> jax.Array | None:
        return batch.next_observation

    def between_policy_steps(self, learner: Learner, batch: Transition) -> Learner:
        return learner
