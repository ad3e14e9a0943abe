"""Every scheme beside `sharing` at equal learner-updates, and CEM's policies together or singly.

    python benchmarks/schemes.py [--rounds 8] [--out results/schemes.json]

TD3 on HalfCheetah-v5 with episodes of 100 steps, networks 400-300, batch 100, N = 4. A scheme and
`sharing` take turns in one process, each time for a number of learner-updates; the ratio is
the median over the turns of their learner-updates/s. Learner-updates equal environment steps in
all schemes but `cem`, which takes more gradient steps than environment steps, and `single`.

CEM with a population of 10: one gradient step of each of the 5 selected policies as one program,
against five programs of one policy each, with their minibatches, in turns.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import gymnasium
import jax
import numpy as np

from p3s import keys
from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.experience.rows import unpack_transitions
from p3s.learning import devices
from p3s.schemes import SCHEMES
from p3s.train import Training

LEARNERS = 4
UPDATES = {"cem": 800, "erl": 500}
"""Learner-updates of a turn: whole rounds, episodes included, where there are rounds."""
OTHER_UPDATES = 400


def short_cheetah() -> gymnasium.Env:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=100)


def start(scheme: str, **fields) -> Training:
    config = resolve(None, scheme, preset="paper", evaluation_period=0, **fields)
    return Training(config, partial(make_env, short_cheetah))


def rate(training: Training, updates: int) -> tuple[float, float]:
    """Learner-updates/s and environment steps/s until this many more learner-updates are done."""
    jax.block_until_ready(training.crew.updater.state)
    enough, steps = training.counters.total_updates + updates, training.total_steps
    done, started = training.counters.total_updates, time.perf_counter()
    training.run(10**9, callback=lambda now: now.counters.total_updates < enough)
    jax.block_until_ready(training.crew.updater.state)
    seconds = time.perf_counter() - started
    return (training.counters.total_updates - done) / seconds, (
        training.total_steps - steps
    ) / seconds


def compare_with_sharing(names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    table = {}
    for name in names:
        counted = "envs_per_learner" if name == "distributed" else "num_learners"
        fields = {} if name == "single" else {counted: LEARNERS}
        own, sharing = (
            start(scheme, initial_steps=25, **(fields if scheme == name else {}))
            for scheme in (name, "sharing")
        )
        updates = UPDATES.get(name, OTHER_UPDATES)
        rate(own, updates)
        rate(sharing, updates)
        turns = [(rate(own, updates), rate(sharing, updates)) for _ in range(rounds)]
        table[name] = {
            "updates_per_second": median(ours[0] for ours, _ in turns),
            "steps_per_second": median(ours[1] for ours, _ in turns),
            "ratio": median(ours[0] / theirs[0] for ours, theirs in turns),
        }
        own.close()
        sharing.close()
        print(f"{name:<12}", {key: round(value, 2) for key, value in table[name].items()})
    return table


def cem_together_or_singly(rounds: int) -> dict[str, float]:
    """Gradient steps of policies per second, as one program and one by one."""
    training = start("cem", num_learners=10, initial_steps=25)
    training.run(1500)
    scheme, state, batch = (
        training.scheme,
        training.crew.updater.state,
        training.config.algorithm.batch_size,
    )
    ring = training.experience.ring
    single = replace(scheme, num_selected=1)
    count = scheme.num_trained

    def compiled(which):
        def step(state, rows, key):
            return which._policy_steps(state, unpack_transitions(training.spec, rows), key)[0]

        return jax.jit(step)

    together, alone = compiled(scheme), compiled(single)
    draw, key = keys.generator(0, "benchmark"), jax.random.key(0)
    parts = [
        state._replace(
            selected=jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], state.selected),
            optimizers=jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], state.optimizers),
        )
        for i in range(count)
    ]

    def step_together():
        jax.block_until_ready(together(state, ring.sample(draw, (count, batch)), key))

    def step_singly():
        for part in parts:
            jax.block_until_ready(alone(part, ring.sample(draw, (1, batch)), key))

    rates: dict[str, list[float]] = {"together": [], "singly": []}
    for turn in range(rounds + 1):
        for name, step in (("together", step_together), ("singly", step_singly)):
            started = time.perf_counter()
            for _ in range(50):
                step()
            if turn:
                rates[name].append(50 * count / (time.perf_counter() - started))
    training.close()
    ratio = median(np.array(rates["together"]) / np.array(rates["singly"]))
    result = {**{name: median(values) for name, values in rates.items()}, "ratio": float(ratio)}
    print("cem, steps of policies/s", {key: round(value, 2) for key, value in result.items()})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    off_policy = [name for name in SCHEMES if name != "rollout"]
    parser.add_argument("--schemes", nargs="+", default=off_policy, help="only these")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    devices.prepare()
    results = {
        "schemes": compare_with_sharing(options.schemes, options.rounds),
        "cem": cem_together_or_singly(options.rounds),
    }
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
