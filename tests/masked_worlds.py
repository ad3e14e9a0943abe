"""Small environments that mask actions, for tests."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

gymnasium.register("test/Corridor-v0", entry_point="tests.masked_worlds:Corridor")


class Corridor(gymnasium.Env):
    """A walk to the end of a corridor; at each place one action of four leads on.

    One more is allowed and stays; the others end the episode without a reward. `uses` counts them.
    """

    LENGTH = 6
    LIMIT = 30

    def __init__(self, by_method: bool = False, start: int = 0, image: bool = False) -> None:
        self.by_method, self.image = by_method, image
        self.action_space = spaces.Discrete(4, start=start)
        size = (4, 4, 1) if image else (self.LENGTH + 1,)
        kind = (0, 255, size, np.uint8) if image else (0.0, 1.0, size, np.float32)
        self.observation_space = spaces.Box(*kind)
        self.uses = 0
        if by_method:
            self.action_masks = self._mask

    def _mask(self) -> np.ndarray:
        mask = np.zeros(4, bool)
        if self.place < self.LENGTH:
            mask[[self.place % 4, (self.place + 1) % 4]] = True
        return mask

    def _show(self):
        info = {} if self.by_method else {"action_mask": self._mask().astype(np.int8)}
        if self.image:
            return np.full((4, 4, 1), self.place, np.uint8), info
        return np.eye(self.LENGTH + 1, dtype=np.float32)[self.place], info

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(2)), 0
        return self._show()

    def step(self, action):
        index = int(action) - int(self.action_space.start)
        mask = self._mask()
        self.time += 1
        if not mask[index]:
            self.uses += 1
            return self._show()[0], 0.0, True, False, {}
        self.place += index == self.place % 4
        over = self.place == self.LENGTH
        seen, info = self._show()
        return seen, float(over) - 0.01, over, not over and self.time == self.LIMIT, info
