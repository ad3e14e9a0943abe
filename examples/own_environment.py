"""An environment of your own: a point that has to find the middle. Its observations are a Dict.

python examples/own_environment.py [STEPS]
"""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces

from p3s import Population


class Middle(gymnasium.Env):
    """Rewards are higher the nearer the point is to 0; an episode has 50 steps."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-1, 1, (1,), np.float32), "late": spaces.Discrete(2)}
    )
    action_space = spaces.Box(-0.2, 0.2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + action[0], -1, 1))
        self.time += 1
        return self._seen(), -abs(self.place), False, self.time == 50, {}

    def _seen(self):
        return {"place": np.array([self.place], np.float32), "late": int(self.time >= 25)}


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    # A callable: every learner has its own copy.
    population = Population(Middle, hidden_sizes=(32, 32), initial_steps=100, review_period=100)
    population.learn(steps)
    for place in (-0.8, 0.1, 0.8):
        seen = {"place": np.array([place], np.float32), "late": 0}
        print(f"at {place:+.1f} it moves by {population.predict(seen)[0][0]:+.2f}")
