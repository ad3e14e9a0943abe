"""How fast a population over shards is: a model of time and bytes, checked, and what it predicts.

    python benchmarks/scaling_model.py [results/shards.json]     also draws docs/images/scaling.svg

One own step of all N learners, in K equal shards of n = N / K learners, u updates of each learner:

    compute   n (environment step + u update) / speed, on every shard at the same time; shards that
              share cores take turns
    own       N (insert a row) + u N (draw the indices of a minibatch): every shard does it for all
    call      one call of every shard per exchange: call / E
    bytes     (N - n) row / link speed: what a shard receives

    seconds per own step = compute + own + call + bytes;   steps/s = N / that

The times are those of `benchmarks/shards.py`. Nothing is fitted to the rates at 1, 2 and 3 nodes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "scaling.svg"


@dataclass(frozen=True)
class Times:
    """Seconds on one machine, and the bytes of a transition."""

    update: float
    environment_step: float
    insert_row: float
    draw_minibatch: float
    call: float
    row_bytes: float


@dataclass(frozen=True)
class Cluster:
    """Shards and what connects them."""

    shards: int
    link: float = 1.25e9
    """Bytes per second into a machine: 10 Gbit/s."""
    speed: float = 1.0
    """Of a shard's updates, against the machine that was measured."""
    environment_cores: int = 1
    """Cores that step the environments of a shard."""
    shared: float = 1.0
    """Shards that share one measured machine: each gets its part of it."""


def parts(
    times: Times, cluster: Cluster, num_learners: int, updates: float = 1, period: int = 10
) -> dict[str, float]:
    """Seconds of one own step of all learners, by what they are spent on."""
    own = num_learners / cluster.shards
    update = own * updates * times.update / cluster.speed
    stepping = own * times.environment_step / cluster.environment_cores
    everybody = num_learners * (times.insert_row + updates * times.draw_minibatch)
    received = (num_learners - own) * times.row_bytes
    return {
        "compute": (update + stepping) * cluster.shared,
        "own": everybody * cluster.shared,
        "call": times.call / period,
        "bytes": received / cluster.link,
    }


def steps_per_second(*arguments: object, **options: object) -> float:
    """Environment steps per second over all learners; arguments as for `parts`."""
    num_learners = arguments[2]
    return num_learners / sum(parts(*arguments, **options).values())  # type: ignore[operator]


def where_replication_stops(times: Times, per_shard: int, cluster: Cluster) -> int:
    """Learners from which on receiving and keeping the replay takes longer than learning."""
    num_learners = per_shard
    while num_learners < 10**7:
        grown = Cluster(max(1, num_learners // per_shard), cluster.link, cluster.speed,
                        cluster.environment_cores)  # fmt: skip
        spent = parts(times, grown, num_learners)
        if spent["own"] + spent["bytes"] > spent["compute"]:
            return num_learners
        num_learners += per_shard
    return num_learners


CASES = {
    "1 machine of 2 cores, N = 4": (Cluster(1), 4),
    "8 GPUs in one machine, N = 128": (Cluster(8, 25e9, 50, 8), 128),
    "64 nodes of 2 cores, N = 256": (Cluster(64), 256),
    "64 nodes, 1 Gbit/s, N = 256": (Cluster(64, 0.125e9), 256),
    "250 nodes, N = 1,000": (Cluster(250), 1000),
    "64 GPUs, N = 1,024": (Cluster(64, 1.25e9, 50, 8), 1024),
}
"""A GPU is taken as 50 times the two cores, which is an assumption, not a measurement."""


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/shards.json")
    found = json.loads(file.read_text())
    times = Times(**found["times"])
    print("nodes on one machine of 2 cores, N = 12: predicted and measured steps/s")
    for count in (1, 2, 3):
        # All shards share the machine, whose update time is that of both cores together.
        predicted = steps_per_second(times, Cluster(count, 1e12, shared=count), 12)
        measured = found["nodes"][str(count)]["steps_per_second"]
        print(f"  {count}  {predicted:7.0f} {measured:7.0f}  {predicted / measured:5.2f}")
    print("predictions: steps/s, and milliseconds of an own step by part")
    for name, (cluster, num_learners) in CASES.items():
        spent = parts(times, cluster, num_learners)
        rate = num_learners / sum(spent.values())
        text = "  ".join(f"{part} {1000 * seconds:.2f}" for part, seconds in spent.items())
        print(f"  {name:32} {rate:10,.0f}   {text}")
    for name, per_shard, cluster in (
        ("2 cores, 10 Gbit/s", 4, Cluster(1)),
        ("2 cores, 1 Gbit/s", 4, Cluster(1, 0.125e9)),
        ("GPU, 10 Gbit/s", 16, Cluster(1, 1.25e9, 50, 8)),
    ):
        most = where_replication_stops(times, per_shard, cluster)
        print(f"replication costs more than learning from N = {most:,} ({name}, {per_shard} each)")
    draw(times, found)
    print(PICTURE.name)


def draw(times: Times, found: dict) -> None:
    """Steps/s over shards, for three kinds of machines and links."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "p3s"
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    counts = [2**k for k in range(11)]
    for label, per_shard, link, speed, cores in (
        ("2 cores, 10 Gbit/s, 4 learners each", 4, 1.25e9, 1, 1),
        ("2 cores, 1 Gbit/s, 4 learners each", 4, 0.125e9, 1, 1),
        ("GPU (assumed 50 ×), 10 Gbit/s, 16 learners each", 16, 1.25e9, 50, 8),
    ):
        rates = [
            steps_per_second(times, Cluster(k, link, speed, cores), k * per_shard) for k in counts
        ]
        (line,) = axes.plot(counts, rates, label=label)
        ideal = [rates[0] * k for k in counts]
        axes.plot(counts, ideal, ":", color=line.get_color(), linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="shards", ylabel="environment steps/s")
    axes.legend(frameon=False, title="dotted: no cost of being many")
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
