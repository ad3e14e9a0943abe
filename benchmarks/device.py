"""Environments on a device beside those on the host, and beside other libraries that have them.

    python benchmarks/device.py [--rounds 8] [--seconds 3] [--hidden 64 64] [--only NAME ...]
    python benchmarks/device.py --peers        rejax's TD3, Brax's SAC: those that are installed
    python benchmarks/device.py --evaluation   what an evaluation takes beside training

All cases are trainings in one process that take turns; within a round each has the same time, and a
ratio is the median of the ratios within a round. Compiling and random steps come before. First
table: P3S-TD3 with four learners on Pendulum, 4 updates of each learner per time step, no
evaluations.

    host            Pendulum-v1, Gymnasium's, one copy of each learner
    steps           func:phys2d/Pendulum-v0, step by step: the replay is on the host
    stretches       the same in stretches, each one program
    no reviews      stretches without a review every 250 own steps
    host 64, steps 64, stretches 64
                    64 copies of each learner, with as many updates per time step

Peers: the same environment object, algorithm, networks, minibatches and replay on both sides, and
one update of each learner per own environment step. Steps per second are those of all learners.
Four learners of a peer that train one after another have the steps per second of one, so the ratio
of `p3s, 4 learners` to it compares one program with those four.

    rejax           0.1.3 takes five values of a step, as gymnax before 1.0 gives. With jax 0.10.2:
                    pip install flax chex matplotlib seaborn six decorator gast attrs wrapt dm-tree
                    pip install --no-deps rejax==0.1.3 gymnax==0.0.9 distrax tfp-nightly
    rejax, 4        four under one vmap, as rejax trains several seeds
    brax            the SAC of brax 0.14.2; its clock leaves out its evaluations
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

import device_peers as peers
from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.learning import devices
from p3s.train import Training

HOST, DEVICE = "Pendulum-v1", "func:phys2d/Pendulum-v0"
LEARNERS, UPDATES, INITIAL = 4, 4, 250
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "host": (HOST, {}),
    "steps": (DEVICE, {"replay_device": "host"}),
    "stretches": (DEVICE, {}),
    "no reviews": (DEVICE, {"review_period": 10**9}),
    "host 64": (HOST, {"envs_per_learner": 64}),
    "steps 64": (DEVICE, {"envs_per_learner": 64, "replay_device": "host"}),
    "stretches 64": (DEVICE, {"envs_per_learner": 64}),
}


class Case:
    """A training of p3s that is continued in its turns; env: a name, or what makes one."""

    def __init__(
        self,
        env: Any,
        hidden: Sequence[int],
        algorithm: str = "td3",
        scheme: str = "p3s",
        **fields: Any,
    ) -> None:
        common = {
            "updates_per_step": UPDATES,
            "initial_steps": INITIAL,
            "random_steps": INITIAL,
            "hidden_sizes": tuple(hidden),
            "evaluation_period": 0,
            "steps": 10**9,
        }
        named = env if isinstance(env, str) else None
        config = resolve(named, scheme, algorithm, **{**common, **fields})
        made = partial(make_env, env if named is None else config.env)
        self.training = Training(config, made)
        self._per_step = config.scheme.num_envs
        self.advance(INITIAL + 100)

    def advance(self, time_steps: int) -> float:
        """Train for this many time steps; seconds that it took."""
        started = time.perf_counter()
        self.training.run(self.training.total_steps + time_steps * self._per_step)
        jax.block_until_ready(self.training.crew.updater.state)
        return time.perf_counter() - started

    def turn(self, seconds: float) -> float:
        """Train for about this long; environment steps per second."""
        first, spent = self.training.total_steps, 0.0
        while spent < seconds:
            spent += self.advance(128)
        return (self.training.total_steps - first) / spent


def measure(
    made: Mapping[str, Callable[[], peers.Peer]], rounds: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Rates, and ratios to the first of the cases."""
    cases = dict[str, peers.Peer]()
    for name, make in made.items():
        started = time.perf_counter()
        cases[name] = make()
        print(f"{name}: ready after {time.perf_counter() - started:.0f} s", flush=True)
    for case in cases.values():
        case.turn(seconds)  # memory that was not used for long may have to come back
    rates = {name: list[float]() for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            rates[name].append(case.turn(seconds))
    first = next(iter(rates.values()))
    return {
        name: {
            "steps_per_second": statistics.median(own),
            "ratio": statistics.median(
                rate / other for rate, other in zip(own, first, strict=True)
            ),
        }
        for name, own in rates.items()
    }


def cases_of_p3s(hidden: Sequence[int], only: Sequence[str]) -> dict[str, Callable[[], Case]]:
    """The trainings of the first table."""
    chosen = {name: CASES[name] for name in only or CASES}
    return {
        name: partial(Case, env, hidden, num_learners=LEARNERS, **fields)
        for name, (env, fields) in chosen.items()
    }


def cases_beside_peers(hidden: Sequence[int]) -> dict[str, dict[str, Callable[[], peers.Peer]]]:
    """The trainings of a table for each peer that is installed; says of the others what is not."""
    sizes = peers.Sizes(hidden, 100, 1e-3, 20_000, INITIAL)
    ours = {
        "updates_per_step": 1, "batch_size": sizes.batch, "learning_rate": sizes.learning_rate,
        "buffer_size": sizes.buffer, "target_rate": 0.005,
    }  # fmt: skip

    def of_p3s(env: Any, algorithm: str, **fields: Any) -> dict[str, Callable[[], Case]]:
        case = partial(Case, env, hidden, algorithm, **ours, **fields)
        return {
            "p3s": partial(case, scheme="single"),
            f"p3s, {LEARNERS} learners": partial(case, num_learners=LEARNERS),
        }

    tables: dict[str, dict[str, Callable[[], peers.Peer]]] = {}
    if (problem := peers.missing("gymnax", "rejax")) is None:
        tables["rejax"] = {
            "rejax": partial(peers.Rejax, sizes),
            f"rejax, {LEARNERS}": partial(peers.Rejax, sizes, LEARNERS),
            **of_p3s("gymnax:Pendulum-v1", "td3"),
        }
    else:
        print(f"not compared with rejax: {problem}")
    if (problem := peers.missing("brax.training.agents.sac.train")) is None:
        env = peers.make_brax_pendulum()
        tables["brax"] = {
            "brax": partial(peers.BraxSAC, sizes),
            **of_p3s(lambda: env, "sac", policy_period=1),
        }
    else:
        print(f"not compared with Brax's SAC: {problem}")
    return tables


def evaluations(hidden: Sequence[int], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of an evaluation, and of the training between two of them."""
    found = {}
    for copies, steps in ((1, 4000), (64, 4000), (64, 100_000)):
        case = Case(DEVICE, hidden, num_learners=LEARNERS, envs_per_learner=copies)
        case.training.evaluate()
        taken = list[tuple[float, float]]()
        for _ in range(rounds):
            trained = case.advance(-(-steps // (LEARNERS * copies)))
            started = time.perf_counter()
            case.training.evaluate()
            taken.append((trained, time.perf_counter() - started))
        training, evaluating = (statistics.median(each) for each in zip(*taken, strict=True))
        found[f"{steps:,} steps, K = {copies}"] = {
            "training": training,
            "evaluation": evaluating,
            "share": statistics.median(second / (first + second) for first, second in taken),
        }
    return found


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    """Print a table."""
    first, columns = next(iter(found)), list(next(iter(found.values())))
    names = {"steps_per_second": "steps/s", "ratio": f"× {first}"}
    words = [title, *(names.get(column, column) for column in columns)]
    print(f"\n| {' | '.join(words)} |\n|{'---|' * len(words)}")
    for name, row in found.items():
        cells = [f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in row.values()]
        print(f"| {' | '.join([name, *cells])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=[])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--evaluation", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    devices.prepare()
    tables: dict[str, dict[str, dict[str, float]]] = {}
    if options.evaluation:
        tables["evaluation, s"] = evaluations(options.hidden, options.rounds)
    elif options.peers:
        for name, cases in cases_beside_peers(options.hidden).items():
            tables[f"beside {name}"] = measure(cases, options.rounds, options.seconds)
    else:
        cases = cases_of_p3s(options.hidden, options.only)
        title = platform.processor() or platform.machine()
        tables[title] = measure(cases, options.rounds, options.seconds)
    for title, found in tables.items():
        show(title, found)
    if options.out is not None:
        options.out.write_text(json.dumps(tables, indent=2))


if __name__ == "__main__":
    main()
