"""A small environment with goals, for tests."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

gymnasium.register("test/Reach-v0", entry_point="tests.goal_worlds:Reach", max_episode_steps=20)


class Reach(gymnasium.Env):
    """A point in a square that has to come near a goal: -1 for every step that is not there.

    ends: whether an episode terminates there. batches: whether goals are judged in batches.
    """

    NEAR = 0.15

    def __init__(self, ends: bool = False, batches: bool = True) -> None:
        self.ends, self.batches = ends, batches
        box = spaces.Box(-1.0, 1.0, (2,), np.float64)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, box))
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        return self._show(), {}

    def _show(self):
        place = self.place.copy()
        return {"observation": -place, "achieved_goal": place, "desired_goal": self.goal.copy()}

    def step(self, action):
        self.place = np.clip(self.place + 0.2 * np.asarray(action, np.float64), -1, 1)
        reward = self.compute_reward(self.place, self.goal, {})
        return (
            self._show(),
            float(reward),
            self.compute_terminated(self.place, self.goal, {}),
            False,
            {},
        )

    def _distance(self, achieved, desired):
        return np.linalg.norm(achieved - desired, axis=-1 if self.batches else None)

    def compute_reward(self, achieved, desired, info):
        return np.where(self._distance(achieved, desired) < self.NEAR, 0.0, -1.0)

    def compute_terminated(self, achieved, desired, info):
        near = self._distance(achieved, desired) < self.NEAR
        return near & self.ends if self.batches else bool(near and self.ends)
