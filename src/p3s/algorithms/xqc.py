"""XQC (Palenicek et al. 2026): SAC made well-conditioned.

Three measures keep gradients even: batch normalization, unit weights (both in
`networks/batch_norm.py`) and a cross-entropy loss. Each of two value networks gives a distribution
of the return over bins z_1 ... z_K (`parts/bins.py`); Q_j is its mean.

    value step    a' ~ pi(s'), pi in evaluation mode
                  p' = Q'_j(s', a') of the network j with the smaller mean, from a pass in training
                  mode over [s; s'], [a; a']
                  y_k = r + discount * gamma * (z_k - alpha log pi(a'|s'));  p = p' at y_k, in bins
                  minimize sum_j mean H(p, Q_j(s, a)), from the same kind of pass
                  targets <- (1 - tau) targets + tau online
    policy        a pass in training mode over s at every update, which moves its statistics
    policy step   at every third update: a ~ pi(s) from that pass
                  minimize mean(alpha log pi(a|s) - min_j Q_j(s, a)) + weight * KL(pi ‖ guide)
                  with Q in evaluation mode;  minimize alpha * (entropy of pi - target entropy)

Rewards are divided by the standard deviation of the discounted return, so that returns fit the
bins (`experience/reward_scale.py`). Adam's step size falls in a line over the run's updates. Each
optimizer counts its own steps, so that the policy's falls a third as far, as in the authors' code.

Differs from the authors' code (danielpalenicek/xqc) in: Qs of four layers of 256 instead of 512,
which cost a third; initial weights, of which only the directions count; bounds of log std and the
tanh correction, see `squashed_gaussian.py`. The authors' two updates per step, 5000 random steps
and discount factor by the length of episodes are in the presets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from p3s.algorithms.off_policy import bootstrap, per_network
from p3s.algorithms.parts.bins import bin_values, cross_entropy, mean_return, share_out
from p3s.algorithms.parts.joint_batch import joint_pass
from p3s.algorithms.parts.rates import moving
from p3s.algorithms.parts.soft_actor_critic import SoftActorCritic, temperature
from p3s.algorithms.parts.soft_gaussian import SoftGaussian
from p3s.algorithms.parts.squashed_gaussian import gaussian, squashed_sample
from p3s.fields.layers import SILENT, Layer, Setting
from p3s.fields.types import Bounds, Count, Positive, Share, Sizes
from p3s.networks import apply_network, train_network
from p3s.types import EnvSpec, Learner, Params, Transition


def discount_for(episode_length: int) -> float:
    """1 - 1/h, with h a fifth of an episode, within bounds; rounded, to be readable in records."""
    return round(min(max(1 - 5 / episode_length, 0.95), 0.995), 6)


def own_discount(setting: Setting) -> Any:
    """The discount factor by the length of episodes, where that is known."""
    length = setting.env and setting.env.episode_length
    return discount_for(length) if length else SILENT


CODE = {
    "updates_per_step": 2,
    "initial_steps": lambda setting: setting.own_steps(5000),
    "discount_factor": own_discount,
}


class BinnedTarget(NamedTuple):
    """What the value networks learn from."""

    next_action: jax.Array
    probabilities: jax.Array
    """Of the bins, (batch, bins)."""


@dataclass(frozen=True, kw_only=True)
class XQC(SoftGaussian, SoftActorCritic):
    """Soft actor-critic with binned returns, batch normalization and unit weights."""

    name: ClassVar[str] = "xqc"
    presets: ClassVar[tuple[Layer, ...]] = (Layer("its own code", CODE),)
    temperature_loss: ClassVar[Literal["log_alpha", "alpha"]] = "alpha"
    falls_along: ClassVar[Literal["linear", "cosine"]] = "linear"
    """What a step size falls along to its end."""

    hidden_sizes: Sizes = (256, 256, 256, 256)
    """Widths of the hidden layers of every network."""
    policy_period: Count = 3
    """Value updates per policy update."""
    network: str = "batch_norm"
    """batch_norm: batch normalization and unit weights."""
    normalize_rewards: bool = True
    """Divide rewards by the standard deviation of the running discounted return."""
    initial_temperature: Positive = 0.01
    """Weight of the entropy at the start (α)."""
    target_entropy: float = -0.5
    """Entropy that the temperature aims at, per action dimension."""
    num_bins: Annotated[int, Bounds(least=2)] = 101
    """Bins of the return."""
    value_limit: Positive = 5.0
    """Bins reach from minus this to this, in units of normalized rewards."""
    learning_rate_end: Share = 0.1
    """Share of every step size that is left in the end, where it is a number and no schedule."""

    @property
    def rates_move(self) -> bool:
        return True

    @property
    def step_size(self) -> optax.ScalarOrSchedule:
        if isinstance(self.learning_rate, str):
            return super().step_size
        about = self.learning_rate, self.learning_rate_end, self.learning_rate_steps
        return moving(self.falls_along, *about)

    @property
    def bins(self) -> jax.Array:
        """The values of the bins, (bins,)."""
        return bin_values(self.num_bins, self.value_limit)

    def init_q_networks(self, keys: jax.Array, spec: EnvSpec, outputs: int = 1) -> Params:
        return super().init_q_networks(keys, spec, self.num_bins * outputs)

    def soft_target(self, learner: Learner, batch: Transition, key: jax.Array) -> BinnedTarget:
        noise = jax.random.normal(key, batch.action.shape, jnp.float32)
        distribution = gaussian(learner.policy, batch.next_observation)
        action, log_density = squashed_sample(distribution, noise)
        _, logits, _ = joint_pass(learner.targets["value"], batch, action)
        lowest = mean_return(logits, self.bins).argmin(axis=0)
        chosen = jnp.take_along_axis(logits, lowest[None, :, None], axis=0)[0]
        soft = self.bins - temperature(learner) * log_density[:, None]
        moved = jax.vmap(partial(bootstrap, batch, self.discount_factor), 1, 1)(soft)
        probabilities = share_out(jax.nn.softmax(chosen), moved, self.num_bins, self.value_limit)
        return BinnedTarget(action, probabilities)

    def target_mean(self, target: BinnedTarget) -> jax.Array:
        return jnp.sum(target.probabilities * self.bins, axis=-1).mean()

    def value_loss(
        self, values: Params, batch: Transition, target: BinnedTarget, key: jax.Array
    ) -> tuple[jax.Array, tuple[Params, None]]:
        logits, _, after = joint_pass(values, batch, target.next_action)
        losses = cross_entropy(logits, target.probabilities)
        return jnp.sum(jnp.mean(losses, axis=1)), (after, None)

    def climbed_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        return self.action_value(learner, observation, action)

    def between_policy_steps(self, learner: Learner, batch: Transition) -> Learner:
        _, policy = train_network(learner.policy, batch.observation)
        return learner._replace(policy=policy)

    def action_value(
        self, learner: Learner, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        inputs, _ = per_network(learner.value, None, observation, action)
        logits = jax.vmap(apply_network)(learner.value, *inputs)
        return mean_return(logits, self.bins).min(axis=0)
