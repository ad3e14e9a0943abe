"""Every shape that modules share, with its axis order stated once.

Axes, outermost first: learner, batch, feature. A singular name (`learner`) is one, a plural
(`learners`) is stacked along a leading learner axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = Any
"""A jax.Array in compiled code, an np.ndarray on the host."""
Params = Any
"""A pytree of float32 arrays."""
Metrics = dict[str, Any]


@dataclass(frozen=True)
class EnvSpec:
    """What a network needs to know of an environment: flat float32 in, actions out.

    `action_size` is the number of action dimensions, each in [-1, 1], or, if `discrete`, the
    number of actions to choose from.
    """

    observation_size: int
    action_size: int
    discrete: bool = False

    @property
    def stored_action_size(self) -> int:
        """Columns that an action takes in a replay row."""
        return 1 if self.discrete else self.action_size

    @property
    def row_size(self) -> int:
        """Columns of one packed transition."""
        return 2 * self.observation_size + self.stored_action_size + 2


class Transition(NamedTuple):
    """One step of experience; `discount` is 1 - terminated, so that a truncation bootstraps."""

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array


class Rollout(NamedTuple):
    """Steps of one environment copy in order, (rows, ...)."""

    steps: Transition
    ended: Array
    """1 where an episode ended, by termination or truncation."""
    present: Array
    """1 for a step, 0 for a row that only fills up the array; such rows come last."""


class Learner(NamedTuple):
    """One learner: its policy, its value functions, and what else its algorithm keeps."""

    policy: Params
    value: Params
    extra: Params


class Guide(NamedTuple):
    """The policy that pulls and how hard (1{i != b} beta in eq. 1); weight 0 is no pull."""

    policy: Params
    weight: Array


def pack(spec: EnvSpec, transition: Transition, rows: np.ndarray) -> None:
    """Write a batch of transitions into `rows`, (batch, row_size)."""
    size, action_end = spec.observation_size, spec.observation_size + spec.stored_action_size
    rows[:, :size] = transition.observation
    rows[:, size:action_end] = np.reshape(transition.action, (len(rows), -1))
    rows[:, action_end] = transition.reward
    rows[:, action_end + 1] = transition.discount
    rows[:, action_end + 2 :] = transition.next_observation


def unpack(spec: EnvSpec, rows: Array) -> Transition:
    """Read packed rows back, (..., row_size); discrete actions come back as int32."""
    size, action_end = spec.observation_size, spec.observation_size + spec.stored_action_size
    action = rows[..., size:action_end]
    return Transition(
        observation=rows[..., :size],
        action=action[..., 0].astype("int32") if spec.discrete else action,
        reward=rows[..., action_end],
        discount=rows[..., action_end + 1],
        next_observation=rows[..., action_end + 2 :],
    )
