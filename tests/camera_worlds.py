"""Small environments whose observations are images with numbers beside them, for tests."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

BARE = "p3s-tests/Camera-v0"
ENV = f"tests.camera_worlds:{BARE}"
"""Its id for processes that have not imported this module."""
if BARE not in gymnasium.registry:
    gymnasium.register(BARE, entry_point="tests.camera_worlds:Camera", disable_env_checker=True)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


class Camera(gymnasium.Env):
    """What it shows is drawn at random, and every part is of another kind: an image with its
    channels first, a gray one; numbers, one of three, bits.

    It pays the first number and ends after 5 to 9 steps.
    """

    SPACE = spaces.Dict(
        {
            "arm": spaces.Tuple(
                [spaces.Box(-2.0, 2.0, (2,), np.float64), spaces.Discrete(3, start=1)]
            ),
            "camera": image(3, 8, 8),
            "grid": image(5, 5),
            "touch": spaces.MultiBinary(2),
        }
    )
    IMAGES: ClassVar = {"camera": (3, 8, 8), "grid": (5, 5, 1)}
    NUM_NUMBERS = 2 + 3 + 2
    NUM_PIXELS = 3 * 8 * 8 + 5 * 5
    NUM_BYTES = 4 * NUM_NUMBERS + NUM_PIXELS

    def __init__(self, discrete: bool = True) -> None:
        self.observation_space = self.SPACE
        self.action_space = (
            spaces.Discrete(3, start=1) if discrete else spaces.Box(-1.0, 3.0, (2,), np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 10))
        return self._show(), {}

    def step(self, action):
        self.left -= 1
        shown = self._show()
        return shown, float(shown["arm"][0][0]), self.left == 0, False, {}

    def _show(self):
        draw = self.np_random
        images = {
            name: draw.integers(0, 256, self.SPACE[name].shape).astype(np.uint8)
            for name in self.IMAGES
        }
        arm = (draw.uniform(-2, 2, 2), int(draw.integers(1, 4)))
        return {**images, "touch": draw.integers(0, 2, 2).astype(np.int8), "arm": arm}


class Masked(Camera):
    """The first action is forbidden where the first bit is 0."""

    def _show(self):
        self.shown = super()._show()
        return self.shown

    def action_masks(self):
        return np.array([self.shown["touch"][0], 1, 1], bool)


class Goals(gymnasium.Env):
    """A point that has to come near a goal, and a picture beside them."""

    def __init__(self, seen_goals: bool = False) -> None:
        box = spaces.Box(-1.0, 1.0, (2,), np.float64)
        goal = image(3, 3) if seen_goals else box
        self.observation_space = spaces.Dict(
            {"achieved_goal": goal, "camera": image(6, 6, 1), "desired_goal": goal,
             "observation": box}
        )  # fmt: skip
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.place, self.goal), self.left = self.np_random.uniform(-1, 1, (2, 2)), 6
        return self._show(), {}

    def step(self, action):
        self.left -= 1
        self.place = np.clip(self.place + 0.2 * np.asarray(action, np.float64), -1, 1)
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._show(), reward, False, self.left == 0, {}

    def _show(self):
        picture = self.np_random.integers(0, 256, (6, 6, 1)).astype(np.uint8)
        place, goal = self.place.copy(), self.goal.copy()
        return {"achieved_goal": place, "camera": picture, "desired_goal": goal,
                "observation": -place}  # fmt: skip

    def compute_reward(self, achieved, desired, info):
        return -np.linalg.norm(achieved - desired, axis=-1)


def batch_of(observations: list) -> dict:
    """Observations of `Camera` as one batch of them."""
    first, second = zip(*(seen["arm"] for seen in observations), strict=True)
    others = {
        name: np.stack([seen[name] for seen in observations])
        for name in ("camera", "grid", "touch")
    }
    return {"arm": (np.stack(first), np.stack(second)), **others}


def shown(count: int) -> list:
    """Different observations of `Camera`."""
    env = Camera()
    return [env.reset(seed=seed)[0] for seed in range(count)]
