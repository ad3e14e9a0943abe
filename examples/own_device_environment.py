"""An environment of your own that is a program of jax: a mass that has to be pushed to the middle.

python examples/own_device_environment.py [STEPS]
p3s train examples.own_device_environment:PointMass --steps 8000
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s import Population


class PointMass:
    """Pure functions: what an episode remembers is in its state, and dice come from the keys."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    step_limit = 50  # p3s truncates and resets; None if every episode ends by itself

    def reset(self, key):
        place = jax.random.uniform(key, (), minval=-1, maxval=1)
        state = jnp.stack([place, 0.0])
        return state, state  # the state and what is seen of it: here the same

    def step(self, state, action, key):
        speed = 0.9 * state[1] + 0.1 * action[0] + 0.01 * jax.random.normal(key)
        state = jnp.stack([state[0] + speed, speed])
        reward, too_far = -jnp.abs(state[0]), jnp.abs(state[0]) > 3
        return state, state, reward, too_far, False  # terminated, truncated


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    # All copies of all learners step in one compiled program.
    population = Population(
        PointMass, hidden_sizes=(32, 32), initial_steps=200, review_period=200, envs_per_learner=2
    )
    population.learn(steps)
    for place in (-0.8, 0.0, 0.8):
        push = population.predict(np.array([place, 0.0], np.float32))[0][0]
        print(f"at {place:+.1f} it pushes by {push:+.2f}")
