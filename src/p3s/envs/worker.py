"""Environment copies in another process, which writes their steps into shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from p3s.envs import Adapter
from p3s.envs.copies import LocalCopies
from p3s.envs.shared_memory import Layout, attach
from p3s.types import EnvSpec, Episode


class Held:
    """A part of the copies; the run calls its methods."""

    def __init__(self, make: Callable[[], Adapter], num_copies: int, seed: int, first: int) -> None:
        self._copies = LocalCopies(make, num_copies, seed, first)
        self._own = slice(first, first + num_copies)
        self._shared: dict[str, np.ndarray] = {}

    def about(self) -> tuple[EnvSpec, bool]:
        """Shapes, and whether episodes can be resumed."""
        return self._copies.spec, self._copies.exact_resume

    def start(self) -> np.ndarray:
        """Begin the first episodes."""
        self._copies.start()
        return self._copies.observations

    def begin_again(self, num_episodes: np.ndarray) -> np.ndarray:
        """Begin the next episodes, in the place of a worker that died."""
        self._copies.num_episodes[:] = num_episodes
        return self.start()

    def share(self, place: tuple[str, Layout]) -> None:
        """Use this shared memory from now on, the part of these copies."""
        self._shared = {name: array[self._own] for name, array in attach(*place).items()}

    def step(self, active: np.ndarray) -> list[Episode]:
        """Step these copies; the episodes that ended."""
        shared = self._shared
        steps, episodes = self._copies.step(np.array(shared["actions"]), active)
        shared["rewards"][active] = steps.reward
        shared["discounts"][active] = steps.discount
        shared["next_observations"][active] = steps.next_observation
        shared["observations"][:] = self._copies.observations
        return episodes

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        return self._copies.snapshot()

    def resume(self, values: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, bool]:
        """Continue from a snapshot; observations, episodes so far, whether every one goes on."""
        self._copies.resume(values)
        return self._copies.observations, self._copies.num_episodes, self._copies.continued

    def close(self) -> None:
        """Close the copies."""
        self._copies.close()
