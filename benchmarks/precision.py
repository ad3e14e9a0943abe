"""What saves time beside the default: differences of returns in the study `precision`.

    p3s study run precision && p3s study export precision -o results/precision.parquet
    python benchmarks/precision.py results/precision.parquet

Every value is the champion's return on fresh episodes at the last evaluation. Intervals (95 %)
resample the seeds of each method in each environment. Over all environments the difference is one
of interquartile means, with returns normalized to the lowest and highest of any run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars

from claims import difference
from p3s.report import statistics
from p3s.report.export import load_results

REFERENCE = "float32"


def last_returns(table: polars.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    """The champion's last returns, by environment and method."""
    found: dict[str, dict[str, np.ndarray]] = {}
    last = table.filter(polars.col("learner") == 0).sort("step")
    for (env, method, _), rows in last.group_by(["env", "method", "seed"], maintain_order=True):
        own = found.setdefault(str(env), {})
        value = rows["champion_return"].drop_nulls()[-1]
        own[str(method)] = np.append(own.get(str(method), []), value)
    return found


def compared(ours: list[np.ndarray], theirs: list[np.ndarray], mean) -> str:
    value, interval = difference(ours, theirs, np.random.default_rng(0), mean)
    seen = "no difference seen" if interval.low <= 0 <= interval.high else "differs"
    return f"{value:+.3g} ({interval.low:+.3g} to {interval.high:+.3g})  {seen}"


def main(path: Path) -> None:
    returns = last_returns(load_results(path))
    methods = [method for method in next(iter(returns.values())) if method != REFERENCE]
    scaled: dict[str, list[np.ndarray]] = {}
    for env, own in returns.items():
        every = np.concatenate(list(own.values()))
        low, high = every.min(), every.max()
        for method, values in own.items():
            scaled.setdefault(method, []).append((values - low) / (high - low))
            print(f"{env}, {method}: mean {values.mean():,.1f} of {len(values)} seeds")
        for method in methods:
            text = compared([own[method]], [own[REFERENCE]], statistics.mean)
            print(f"{env}, {method} - {REFERENCE}: {text}")
    for method in methods:
        text = compared(scaled[method], scaled[REFERENCE], statistics.iqm)
        print(f"all, normalized IQM, {method} - {REFERENCE}: {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
