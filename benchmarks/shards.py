"""Shards: in one process and on Ray, in turns; bytes that cross the network; nodes; devices.

    python benchmarks/shards.py [--rounds 4] [--seconds 4]        writes results/shards.json

TD3 400-300 on HalfCheetah-v5, preset `paper` (one update per step of a learner), N = 4, an exchange
every 10 own steps, nothing evaluated. Runs take turns, since a machine's speed may change within
minutes; the first second of a turn does not count. Rates are medians over the rounds, ratios
medians of the ratios within a round.

    engines   2 shards on Ray (this machine, a core each) against 2 shards in this process
    devices   N = 16 over 2 devices against 1
    nodes     1, 2 and 3 nodes of one CPU on this machine, one shard each
    bytes     what crosses the loopback device of 2 such nodes, per environment step, less what
              crosses it while they do nothing; beside the bytes of the transitions themselves
    times     for the model of benchmarks/scaling_model.py: an update and an environment step of a
              learner, a call of an actor, inserting a row, drawing the indices of a minibatch
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.experience.replay import Ring
from p3s.experience.rows import record
from p3s.learning import devices
from p3s.train import Training

ENV, EXCHANGE_PERIOD, FOREVER, WARM_UP = "HalfCheetah-v5", 10, 10**9, 1.0


def training(num_learners: int = 4, **fields: Any) -> Training:
    """A run that learns from own step 250 on, and writes nothing."""
    config = resolve(
        ENV, "p3s", preset="paper", num_learners=num_learners, initial_steps=250,
        evaluation_period=0, checkpoint_period=0, buffer_size=200_000, metrics_period=10**8,
        **fields,
    )  # fmt: skip
    made = Training(config, partial(make_env, config.env))
    made.run((250 + 30) * num_learners)  # everything is compiled
    return made


def turn(run: Training, seconds: float) -> float:
    """Steps/s of a turn, after a second that does not count."""
    for length in (WARM_UP, seconds):
        started, before = time.perf_counter(), run.total_steps
        run.run(FOREVER, lambda now, end=started + length: time.perf_counter() < end)
        rate = (run.total_steps - before) / (time.perf_counter() - started)
    return rate


def in_turns(runs: dict[str, Training], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Steps/s of each run in every round."""
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            rates[name].append(turn(run, seconds))
    for run in runs.values():
        run.close()
    return rates


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def loopback_bytes() -> int:
    """Bytes received by the loopback device so far."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[1])


def on_nodes(count: int, rounds: int, seconds: float) -> dict[str, float]:
    """Steps/s, and bytes per environment step, on this many nodes with one shard each."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(count):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    run = training(12, shards=count, exchange_period=EXCHANGE_PERIOD, engine="ray",
                   address=cluster.address)  # fmt: skip
    rates = []
    before, quiet_from = loopback_bytes(), time.perf_counter()
    time.sleep(3)
    quiet = (loopback_bytes() - before) / (time.perf_counter() - quiet_from)
    first_bytes, first_step, started = loopback_bytes(), run.total_steps, time.perf_counter()
    for _ in range(rounds):
        rates.append(turn(run, seconds))
    elapsed = time.perf_counter() - started
    crossed = loopback_bytes() - first_bytes - quiet * elapsed
    per_step = crossed / (run.total_steps - first_step)
    run.close()
    ray.shutdown()
    cluster.shutdown()
    return {"steps_per_second": statistics.median(rates), "loopback_bytes_per_step": per_step}


def times(rounds: int, seconds: float) -> dict[str, float]:
    """Seconds of the parts of a step, on this machine."""
    whole = training(4)
    before, updates = whole.crew.stepping_seconds, whole.counters.total_updates
    started, first = time.perf_counter(), whole.total_steps
    turn(whole, rounds * seconds)
    stepping = (whole.crew.stepping_seconds - before) / (whole.total_steps - first)
    elapsed = time.perf_counter() - started
    update = elapsed / (whole.counters.total_updates - updates) - stepping
    row_bytes = record(whole.spec).itemsize
    whole.close()
    ring, rng = Ring(np.zeros((100_000, row_bytes // 4), np.float32)), np.random.default_rng(0)
    rows = np.zeros((10_000, row_bytes // 4), np.float32)
    started = time.perf_counter()
    ring.add(rows)
    insert = (time.perf_counter() - started) / len(rows)
    started = time.perf_counter()
    rng.integers(0, 100_000, (1000, 100))
    draw = (time.perf_counter() - started) / 1000
    return {"update": update, "environment_step": stepping, "insert_row": insert,
            "draw_minibatch": draw, "row_bytes": row_bytes}  # fmt: skip


def call_seconds(run: Training) -> float:
    """Seconds of a call that asks all shards for next to nothing."""
    started = time.perf_counter()
    for _ in range(100):
        run.crew.places.tell_all("current_scaling")
    return (time.perf_counter() - started) / 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path, default=Path("results/shards.json"))
    options = parser.parse_args()
    rounds, seconds = options.rounds, options.seconds
    devices.prepare()
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine()}
    found["times"] = times(rounds, seconds)
    two = {"shards": 2, "exchange_period": EXCHANGE_PERIOD}
    engines = {"local": training(4, **two), "ray": training(4, engine="ray", **two)}
    found["times"]["call"] = call_seconds(engines["ray"])
    rates = in_turns(engines, rounds, seconds)
    found["engines"] = {**rates, "ray / local": ratio(rates["ray"], rates["local"]), "goal": 0.85}
    print(json.dumps(found, indent=1), flush=True)
    over = in_turns({n: training(16, devices=int(n)) for n in ("1", "2")}, rounds, seconds)
    found["devices"] = {**over, "2 / 1": ratio(over["2"], over["1"]), "goal": 1.0}
    print(json.dumps(found["devices"], indent=1), flush=True)
    found["nodes"] = {str(n): on_nodes(n, rounds, seconds) for n in (1, 2, 3)}
    row = found["times"]["row_bytes"]
    found["bytes"] = {
        "transition": row,
        "received by shards per step, 2 shards": row * 1,
        "loopback per step, 2 nodes": found["nodes"]["2"]["loopback_bytes_per_step"],
    }
    print(json.dumps({name: found[name] for name in ("nodes", "bytes")}, indent=1))
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
