"""Copies of a functional environment that live on a device, stepped together by one program.

To a run they are like copies on the host (copies.py). What is counted of their episodes stays on
the host: returns in double precision, lengths, numbers of episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from p3s import keys
from p3s.envs.copies import LEAF, PER_COPY, Steps, check_finite
from p3s.envs.functional import FunctionalEnv
from p3s.envs.functional_checks import first_cause
from p3s.envs.on_host import as_numbers, from_numbers
from p3s.envs.simulation import Copies, simulation_of
from p3s.errors import UserError, note
from p3s.types import EnvSpec, Episode, Transition


class DeviceCopies:
    """Copies of an environment that is a program.

    copies: which of a population's these are.
    """

    def __init__(self, env: FunctionalEnv, spec: EnvSpec, copies: range, seed: int) -> None:
        self.spec, self.copies = spec, copies
        self.simulation = simulation_of(env, spec)
        self.key = keys.key(seed, "episode")
        self.indices = np.arange(copies.start, copies.stop, dtype=np.int32)
        self.now: Copies | None = None
        """Where the copies are; None before the first episodes."""
        self.totals = np.zeros(len(copies), np.float64)
        self.lengths = np.zeros(len(copies), np.int64)
        self.num_episodes = np.zeros(len(copies), np.int64)
        self.exact_resume, self.continued = True, True
        self.lost: list[int] = []

    @property
    def observations(self) -> np.ndarray:
        """What the copies show now, (copies, *shape)."""
        if self.now is None:
            kind = self.spec.observation
            return np.zeros((len(self.copies), *kind.shape), kind.dtype)
        return np.array(self.now.observation)  # a copy: the device may write over its own

    def start(self) -> None:
        try:
            self.now = self.simulation.begin(
                self.key, self.indices, self.num_episodes.astype(np.int32)
            )
        except Exception as error:
            raise UserError(f"the environment cannot be compiled: {first_cause(error)}") from error
        self.totals[:], self.lengths[:] = 0.0, 0
        self.num_episodes += 1
        self._check_observations(self.observations, self.copies)
        if len(self.copies) > 1 and _first_two_are_equal(self.now):
            note(
                "all episodes of the environment start alike, since its reset ignores its key "
                "(random numbers from elsewhere are constants in a compiled program)"
            )

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        check_finite("action of learner {}", actions, self.copies)
        everybody = len(active) == len(self.copies)
        stepping = None if everybody else np.isin(np.arange(len(self.copies)), active)
        self.now, *told = self.simulation.step(self.key, self.indices, self.now, actions, stepping)
        transition, ended = jax.device_get(told)
        transition = Transition(*(part[active] for part in transition))
        whose = [self.copies[index] for index in active]
        self._check_observations(transition.next_observation, whose)
        check_finite("reward of learner {}'s environment", transition.reward, whose)
        rewards = np.zeros(len(self.copies))
        rewards[active] = transition.reward
        return Steps(transition, self.count(rewards, active, ended))

    def count(self, rewards: np.ndarray, active: np.ndarray, ended: np.ndarray) -> list[Episode]:
        """Count a step of the active copies; the episodes that ended with it.

        rewards, ended: (copies,).
        """
        self.totals += rewards
        self.lengths[active] += 1
        over = np.flatnonzero(ended)
        episodes = [
            Episode(self.copies[i], float(self.totals[i]), int(self.lengths[i])) for i in over
        ]
        self.totals[over], self.lengths[over] = 0.0, 0
        self.num_episodes[over] += 1
        return episodes

    # ------------------------------------------------------------------ out and in

    def snapshot(self) -> dict[str, Any]:
        if self.now is None:
            return {}
        values: dict[str, Any] = {name: getattr(self, name) for name in PER_COPY}
        leaves = jax.tree.leaves(self.now.state)
        return values | {f"{LEAF}{index}": as_numbers(leaf) for index, leaf in enumerate(leaves)}

    def resume(self, values: dict[str, Any]) -> None:
        if not values:
            return
        for name in PER_COPY:
            if name != "observations":
                setattr(self, name, values[name].copy())
        begun: Copies = self.simulation.begin(
            self.key, self.indices, self.num_episodes.astype(np.int32)
        )
        state = self._state(values, begun.state)
        self.continued = state is not None
        if state is None:
            note("all episodes begin anew: the checkpoint does not hold the environments' states")
            self.start()
            return
        self.now = Copies(
            state,
            jax.numpy.asarray(values["observations"]),
            jax.numpy.asarray(self.lengths, np.int32),
            jax.numpy.asarray(self.num_episodes - 1, np.int32),
        )

    def _state(self, values: dict[str, Any], like: Any) -> Any:
        """The states of a snapshot; None if it holds none of this kind."""
        likes, structure = jax.tree.flatten(like)
        names = [f"{LEAF}{index}" for index in range(len(likes))]
        if not values.keys() >= set(names):
            return None
        held = [values[name] for name in names]
        kinds = [(own.shape, own.dtype) for own in map(as_numbers, likes)]
        if [(leaf.shape, leaf.dtype) for leaf in held] != kinds:
            return None
        return structure.unflatten(
            [from_numbers(leaf, own) for leaf, own in zip(held, likes, strict=True)]
        )

    def close(self) -> None:
        self.now = None

    def _check_observations(self, values: np.ndarray, whose: Sequence[int]) -> None:
        check_finite("observation of learner {}'s environment", values, whose)


def _first_two_are_equal(copies: Any) -> bool:
    pairs = [as_numbers(leaf[:2]) for leaf in jax.tree.leaves(copies)]
    return all(np.array_equal(first, second, equal_nan=True) for first, second in pairs)
