"""Small environments whose observations are images with numbers beside them, for tests."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

ENV = "p3s-tests/Camera-v0"
if ENV not in gymnasium.registry:
    gymnasium.register(ENV, entry_point="tests.camera_worlds:Camera", disable_env_checker=True)


class Camera(gymnasium.Env):
    """What it shows is random; it pays 1 and ends after 5 to 9 steps. Every part has its own kind.

    camera: pixels first channel; grid: gray; a stack of two; numbers, one of three, bits.
    """

    SPACE = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(-2.0, 2.0, (2,), np.float64), spaces.Discrete(3, start=1)]),
            "camera": spaces.Box(0, 255, (3, 8, 8), np.uint8),
            "grid": spaces.Box(0, 255, (5, 5), np.uint8),
            "past": spaces.Box(0, 255, (2, 6, 6, 1), np.uint8),
            "touch": spaces.MultiBinary(2),
        }
    )
    IMAGES = ((3, 8, 8), (5, 5, 1), (2, 6, 6, 1))
    NUM_NUMBERS = 2 + 3 + 2

    def __init__(self, discrete: bool = True) -> None:
        self.observation_space = self.SPACE
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 10))
        return self._show(), {}

    def step(self, action):
        self.left -= 1
        return self._show(), 1.0, self.left == 0, False, {}

    def _show(self):
        draw = self.np_random
        images = {
            name: draw.integers(0, 256, self.SPACE[name].shape).astype(np.uint8)
            for name in ("camera", "grid", "past")
        }
        arm = (draw.uniform(-2, 2, 2), int(draw.integers(1, 4)))
        return {"arm": arm, "touch": draw.integers(0, 2, 2).astype(np.int8), **images}
