"""Train a population, look at it, keep it, use it.

python examples/quickstart.py [STEPS]
"""

import sys

import gymnasium

from p3s import Population, evaluate, load
from p3s.callbacks import StopAt

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 28_000
population = Population("InvertedPendulum-v5", hidden_sizes=(64, 64), seed=0)
population.learn(steps, callback=StopAt(1000))
print(population)
print("champion:", evaluate(population, episodes=5).mean())

population.policy.save("inverted_pendulum.safetensors")
policy = load("inverted_pendulum.safetensors")
env = gymnasium.make("InvertedPendulum-v5")
observation, _ = env.reset(seed=0)
total, over = 0.0, False
while not over:
    action, _ = policy.predict(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    total, over = total + float(reward), terminated or truncated
print("one episode, by hand:", total)
