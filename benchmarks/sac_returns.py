"""Returns of p3s's SAC beside SBX's: HalfCheetah-v5, the same settings, seeds and evaluation.

    python benchmarks/sac_returns.py [--steps 40000] [--seeds 2] [--out results/sac_returns.json]

Networks 256-256, batch 256, learning rate 3e-4, one update a step from step 10,000 on, random
actions before. The trained policies play 10 noiseless episodes. Needs SBX: `make bench` installs
it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import gymnasium
import numpy as np

ENV = "HalfCheetah-v5"
RANDOM_STEPS = 10_000


def train_p3s(seed: int, steps: int) -> np.ndarray:
    from p3s import Population, evaluate

    population = Population(
        ENV, scheme="single", algorithm="sac", seed=seed, evaluation_period=0,
        initial_steps=RANDOM_STEPS, hidden_sizes=(256, 256), batch_size=256, learning_rate=3e-4,
    )  # fmt: skip
    population.learn(steps, progress_bar=False)
    return evaluate(population, episodes=10, seed=seed)


def train_sbx(seed: int, steps: int) -> np.ndarray:
    from sbx import SAC

    model = SAC(
        "MlpPolicy", ENV, seed=seed, batch_size=256, learning_rate=3e-4, gamma=0.99, tau=0.005,
        learning_starts=RANDOM_STEPS, policy_kwargs={"net_arch": [256, 256]},
    )  # fmt: skip
    model.learn(steps)
    env = gymnasium.make(ENV)
    returns = np.zeros(10)
    for episode in range(10):
        observation, _ = env.reset(seed=1000 * seed + episode)
        done = False
        while not done:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            returns[episode] += float(reward)
            done = terminated or truncated
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {"p3s": {}, "sbx": {}}
    for seed in range(options.seeds):
        for name, train in (("p3s", train_p3s), ("sbx", train_sbx)):
            started = time.perf_counter()
            returns = train(seed, options.steps)
            results[name][str(seed)] = float(returns.mean())
            print(
                f"{name} SAC, seed {seed}, {options.steps} steps: "
                f"{returns.mean():.0f} ± {returns.std(ddof=1):.0f} over 10 episodes, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
