"""A camera and joints in one observation: network multi reads each by an encoder of its own.

python examples/camera_and_joints.py [STEPS]

A hand on two sliding joints has to come to a target. The joints are numbers, but only the camera
sees the target: without it the best that a hand can do is to wait in the middle.
"""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces

from p3s import Population, evaluate


class Slides(gymnasium.Env):
    """Rewards are higher the nearer the hand is to the target; an episode has 10 steps."""

    PIXELS, LENGTH, SPEED = 16, 10, 0.4

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8),
            "joints": spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.joints, self.target), self.time = self.np_random.uniform(-1, 1, (2, 2)), 0
        return self._seen(), {}

    def step(self, action):
        self.joints = np.clip(self.joints + self.SPEED * np.asarray(action), -1, 1)
        self.time += 1
        distance = float(np.linalg.norm(self.joints - self.target))
        return self._seen(), -distance, False, self.time == self.LENGTH, {}

    def _seen(self):
        return {"camera": self._picture(), "joints": self.joints.astype(np.float32)}

    def _picture(self):
        """A bright spot where the target is."""
        places = np.linspace(-1, 1, self.PIXELS)
        across, down = (np.exp(-((places - at) ** 2) / 0.03) for at in self.target)
        return np.rint(255 * np.outer(down, across))[..., None].astype(np.uint8)


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    # Its network follows from the observation; `network="mlp"` would flatten it.
    population = Population(Slides, algorithm="sac", num_learners=2, hidden_sizes=(64, 64))
    population.learn(steps)
    returns = evaluate(population, episodes=20)
    print(f"mean return {returns.mean():.1f}; a hand that waits in the middle has about -8")
