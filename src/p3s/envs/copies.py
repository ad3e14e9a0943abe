"""Environment copies in, transitions and finished returns out.

Each copy belongs to one learner. Episode k of learner i starts from a seed of its own, so where
it starts does not depend on anything that happened before. A transition never crosses a reset:
the observation stored with it is the true final one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from p3s import keys
from p3s.envs import Adapter
from p3s.envs.state import can_capture, capturable_names, capture, restore
from p3s.errors import TrainingStopped, environment_error
from p3s.types import EnvSpec, Transition, pack


class Episode(NamedTuple):
    """A finished training episode."""

    learner: int
    total: float
    length: int


class Collector:
    """N environment copies and the episodes in progress in them."""

    def __init__(self, make: Callable[[], Adapter], num_copies: int, seed: int) -> None:
        self._seed = seed
        self.envs = [make() for _ in range(num_copies)]
        self.spec: EnvSpec = self.envs[0].env_spec
        self.observations = np.zeros((num_copies, self.spec.observation_size), np.float32)
        self.totals = np.zeros(num_copies, np.float64)
        self.lengths = np.zeros(num_copies, np.int64)
        self.num_episodes = np.zeros(num_copies, np.int64)
        self.exact_resume = can_capture(make, keys.integer(seed, "probe"))
        self._names: list[list[str]] | None = None

    def start(self) -> None:
        """Begin the first episode in every copy."""
        for index in range(len(self.envs)):
            self._reset(index)

    def _reset(self, index: int) -> None:
        seed = keys.integer(self._seed, "episode", index, int(self.num_episodes[index]))
        try:
            observation, _ = self.envs[index].reset(seed=seed)
        except Exception as error:
            raise environment_error("at a reset", index, error) from error
        self.observations[index] = observation
        _check_finite("observation of learner {}'s environment", self.observations)
        self.totals[index], self.lengths[index] = 0.0, 0
        self.num_episodes[index] += 1

    def step(self, actions: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, list[Episode]]:
        """One step in the active copies: packed transitions, (active, row_size), and what ended."""
        _check_finite("action of learner {}", actions)
        count = len(self.envs)
        rewards, discounts = np.zeros(count, np.float64), np.ones(count, np.float32)
        next_observations = self.observations.copy()
        ended = []
        for index in active.tolist():
            try:
                observation, reward, terminated, truncated, _ = self.envs[index].step(
                    actions[index]
                )
            except Exception as error:
                raise environment_error("at a step", index, error) from error
            next_observations[index], rewards[index] = observation, reward
            discounts[index] = not terminated
            if terminated or truncated:
                ended.append(index)
        _check_finite("observation of learner {}'s environment", next_observations)
        _check_finite("reward of learner {}'s environment", rewards)
        rows = np.empty((count, self.spec.row_size), np.float32)
        transition = Transition(self.observations, actions, rewards, discounts, next_observations)
        pack(self.spec, transition, rows)
        self.observations = next_observations
        self.totals += rewards
        self.lengths[active] += 1
        episodes = [Episode(i, float(self.totals[i]), int(self.lengths[i])) for i in ended]
        for index in ended:
            self._reset(index)
        return rows if len(active) == count else rows[active], episodes

    def snapshot(self) -> tuple[dict[str, np.ndarray], list[bytes]]:
        """Arrays and environment states from which `resume` goes on."""
        arrays = {
            "observations": self.observations,
            "totals": self.totals,
            "lengths": self.lengths,
            "num_episodes": self.num_episodes,
        }
        if not self.exact_resume:
            return arrays, []
        if self._names is None:
            self._names = capturable_names(self.envs[0])
        return arrays, [capture(env, self._names) for env in self.envs]

    def resume(self, arrays: dict[str, np.ndarray], states: list[bytes]) -> None:
        """Go on from a snapshot; without environment states, with a new episode in each copy."""
        for name, value in arrays.items():
            setattr(self, name, value.copy())
        if not states:
            self.start()
            return
        for env, state in zip(self.envs, states, strict=True):
            env.reset(seed=0)
            restore(env, state)

    def close(self) -> None:
        """Close every environment copy."""
        for env in self.envs:
            env.close()


def _check_finite(what: str, values: np.ndarray) -> None:
    """Stop if one of the stacked values is not finite, and say whose."""
    finite = np.isfinite(values)
    if not finite.all():
        learner = int(np.argwhere(~finite)[0][0])
        raise TrainingStopped(f"the {what.format(learner)} is {values[learner]}")
