"""How much a population in one program gains, for every off-policy algorithm.

    python benchmarks/algorithms.py [--seconds 5] [--out results/algorithms.json]

Compiled updates alone, without environments, all in this one process:

    four in one     one vmapped update of four learners
    four singles    four updates of one learner each, one after another, each with its own program

at two sizes: 32-32 networks with batches of 32, where starting a program costs more than running
it, and the algorithm's own defaults. Then one learner of TD3, SAC, TQC and CrossQ beside SBX's of
the same sizes, if that is installed: each draws a minibatch from its own replay and takes one
gradient step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.algorithms.off_policy import OffPolicy
from p3s.experience.replay import Ring
from p3s.experience.rows import empty_rows, unpack_transitions
from p3s.learning import devices
from p3s.learning.devices import compiler_options
from p3s.learning.learners import init_learners, update_learners
from p3s.trees import pick
from p3s.types import EnvSpec, Guide, Transition
from sbx_learners import POLICY_DELAY, make_sbx

NUM_LEARNERS = 4
SPECS = {"continuous": EnvSpec.flat(17, 6), "discrete": EnvSpec.flat(17, 6, discrete=True)}
"""HalfCheetah's sizes, and as many actions to choose from."""
REPLAY_SIZE = 1000
SMALL = {"hidden_sizes": (32, 32), "batch_size": 32}
MEDIUM = {"hidden_sizes": (256, 256), "batch_size": 256}


def random_batches(spec: EnvSpec, learners: int, size: int) -> Transition:
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draw.normal(size=(learners, size, *shape)), jnp.float32)

    if spec.discrete:
        action = jnp.asarray(draw.integers(0, spec.action_size, (learners, size)), jnp.int32)
    else:
        action = jnp.tanh(normal(spec.action_size))
    seen, following = normal(spec.observation_size), normal(spec.observation_size)
    return Transition(seen, action, normal(), jnp.ones((learners, size), jnp.float32), following)


class Updates:
    """Learners of their own, and one compiled update of them all with every policy step in it."""

    def __init__(self, algorithm: Algorithm, num_learners: int) -> None:
        spec = SPECS[algorithm.actions]
        learners = init_learners(algorithm, jax.random.key(0), spec, num_learners, False)
        # Copies: what is updated in place must share nothing, as targets and policies do at first.
        self.learners = jax.tree.map(jnp.copy, learners)
        self.batches = random_batches(spec, num_learners, algorithm.batch_size)
        weight = jnp.ones(num_learners, jnp.float32)
        policy = jax.tree.map(jnp.copy, pick(algorithm.policy_of(self.learners), 0))
        self.guide = Guide(policy, weight)
        self.key, self.indices = jax.random.key(1), jnp.arange(num_learners)
        update = partial(update_learners, algorithm, with_policy=True)
        self.update = jax.jit(update, donate_argnums=0, compiler_options=compiler_options())

    def __call__(self) -> Any:
        self.learners, metrics = self.update(
            self.learners, self.batches, self.guide, self.key, self.indices
        )
        return metrics


def rate(step: Callable[[], Any], seconds: float) -> float:
    """Calls per second, the first ones not counted."""
    for _ in range(3):
        jax.block_until_ready(step())
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        # Results are waited for, as a training does that reads its metrics.
        jax.block_until_ready(step())
        count += 1
    return count / (time.perf_counter() - started)


def measure_population(name: str, fields: dict[str, Any], seconds: float) -> dict[str, float]:
    """Learner-updates per second, both ways, in turns so that a busy machine is fair to both."""
    algorithm = ALGORITHMS[name](**fields)
    together = Updates(algorithm, NUM_LEARNERS)
    singles = [Updates(algorithm, 1) for _ in range(NUM_LEARNERS)]

    def one_after_another() -> list[Any]:
        return [jax.block_until_ready(single()) for single in singles]

    rates: dict[str, list[float]] = {"together": [], "singles": []}
    for _ in range(3):
        rates["together"].append(NUM_LEARNERS * rate(together, seconds / 6))
        rates["singles"].append(NUM_LEARNERS * rate(one_after_another, seconds / 6))
    result = {way: float(np.median(values)) for way, values in rates.items()}
    return {**result, "ratio": result["together"] / result["singles"]}


def p3s_step(algorithm: OffPolicy) -> Callable[[], Any]:
    """One update of one learner, its minibatch drawn on the host."""
    spec, draw = SPECS["continuous"], np.random.default_rng(0)
    ring, updates = Ring(empty_rows(REPLAY_SIZE, spec)), Updates(algorithm, 1)
    ring.add(draw.uniform(-1, 1, ring.rows.shape).astype(np.float32))
    numbers = itertools.count(1)

    def sampled(learners: Any, rows: Any, guide: Guide, key: jax.Array, with_policy: bool) -> Any:
        batches = unpack_transitions(spec, rows)
        return update_learners(algorithm, learners, batches, guide, key, jnp.arange(1), with_policy)

    update = jax.jit(
        sampled, donate_argnums=0, static_argnums=4, compiler_options=compiler_options()
    )

    def step() -> Any:
        rows = ring.sample(draw, (1, algorithm.batch_size))
        due = next(numbers) % algorithm.policy_period == 0
        updates.learners, metrics = update(updates.learners, rows, updates.guide, updates.key, due)
        return metrics

    return step


def sbx_step(algorithm: OffPolicy) -> Callable[[], Any]:
    """One gradient step of SBX's algorithm of the same name."""
    model = make_sbx(
        "HalfCheetah-v5", algorithm.name, 0, algorithm.hidden_sizes, algorithm.batch_size,
        algorithm.learning_rate, REPLAY_SIZE,
    )  # fmt: skip
    model.learn(REPLAY_SIZE + 1)

    def step() -> Any:
        model.train(1, algorithm.batch_size)
        state = getattr(model.policy, "qf_state", None) or model.policy.qf1_state
        return state.params

    return step


def measure_beside_sbx(name: str, fields: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Updates per second: one learner here, and SBX's with the same sizes and policy period."""
    algorithm = ALGORITHMS[name](**{"policy_period": POLICY_DELAY[name], **fields})
    assert isinstance(algorithm, OffPolicy)
    ours = p3s_step(algorithm)
    try:
        theirs = sbx_step(algorithm)
    except ImportError as error:
        return {"p3s": rate(ours, seconds), "error": f"no SBX: {error}"}
    rates: dict[str, list[float]] = {"p3s": [], "sbx": []}
    for _ in range(3):
        rates["p3s"].append(rate(ours, seconds / 6))
        rates["sbx"].append(rate(theirs, seconds / 6))
    result = {name: float(np.median(values)) for name, values in rates.items()}
    return {**result, "ratio": result["p3s"] / result["sbx"]}


def table(results: dict[str, Any]) -> str:
    lines = [f"{'':<14}{'sizes':<10}{'four in one':>13}{'four singles':>14}{'ratio':>8}"]
    for name, sizes in results["population"].items():
        for size, row in sizes.items():
            lines.append(
                f"{name:<14}{size:<10}{row['together']:>13.0f}{row['singles']:>14.0f}"
                f"{row['ratio']:>8.2f}"
            )
    lines += ["", f"{'one learner':<24}{'p3s':>13}{'SBX':>14}{'ratio':>8}"]
    for name, sizes in results["beside_sbx"].items():
        for size, row in sizes.items():
            rest = row.get("error") or f"{row['sbx']:>14.0f}{row['ratio']:>8.2f}"
            lines.append(f"{name:<14}{size:<10}{row['p3s']:>13.0f}{rest}")
    return "\n".join([*lines, "", "learner-updates per second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--algorithms", nargs="+", help="only these")
    parser.add_argument("--out", type=Path, help="write the numbers here as JSON")
    options = parser.parse_args()
    devices.prepare()
    names = [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)]
    sizes: dict[str, dict[str, Any]] = {"32-32": SMALL, "default": {}}
    results: dict[str, Any] = {"population": {}, "beside_sbx": {}}
    for name in options.algorithms or names:
        results["population"][name] = {}
        for size, fields in sizes.items():
            row = measure_population(name, fields, options.seconds)
            results["population"][name][size] = row
            print(f"{name} {size}: {row}", file=sys.stderr, flush=True)
    for name in set(options.algorithms or names) & POLICY_DELAY.keys():
        results["beside_sbx"][name] = {
            size: measure_beside_sbx(name, fields, options.seconds)
            for size, fields in {"32-32": SMALL, "256-256": MEDIUM}.items()
        }
    print(table(results))
    if options.out is not None:
        machine = {"cores": os.cpu_count(), "system": platform.platform()}
        record = {"machine": machine, "seconds": options.seconds, "results": results}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
