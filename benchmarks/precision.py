"""What saves time beside the default: differences of returns in the study `precision`.

    p3s study run precision && p3s study export precision -o results/precision.parquet
    python benchmarks/precision.py results/precision.parquet

Every value is the champion's return on fresh episodes at the last evaluation. Intervals (95 %)
resample the seeds of each method in each environment; p is that of the exact permutation test. Over
all environments the difference is one of interquartile means of returns on the report's scale
(p3s.report.scales).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars

from claims import difference
from p3s.report import statistics
from p3s.report.export import load_results, results_of
from p3s.report.formatting import p_text
from p3s.report.summary import summarize

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
    rng = np.random.default_rng(0)
    value, interval = difference(ours, theirs, rng, mean)
    p_value = statistics.permutation_p(ours, theirs, rng)
    seen = "differs" if p_value < statistics.DECIDED else "no difference seen"
    span = "" if np.isnan(interval.low) else f" ({interval.low:+.3g} to {interval.high:+.3g})"
    return f"{value:+.3g}{span}, p {p_text(p_value)}  {seen}"


def main(path: Path) -> None:
    table = load_results(path)
    returns, summary = last_returns(table), summarize(results_of(table), np.random.default_rng(0))
    print("\n".join(summary.notes))
    methods = [method for method in next(iter(returns.values())) if method != REFERENCE]
    scaled: dict[str, list[np.ndarray]] = {}
    for env, own in returns.items():
        for method, values in own.items():
            if env in summary.overall.envs:
                scaled.setdefault(method, []).append(summary.scales[env].normalize(values))
            print(f"{env}, {method}: mean {values.mean():,.1f} of {len(values)} seeds")
        for method in methods:
            text = compared([own[method]], [own[REFERENCE]], statistics.mean)
            print(f"{env}, {method} - {REFERENCE}: {text}")
    for method in methods:
        text = compared(scaled[method], scaled[REFERENCE], statistics.iqm)
        print(f"all, normalized IQM, {method} - {REFERENCE}: {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
