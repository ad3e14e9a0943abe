"""What decides the studies `parallel` and `parallel-second`: means over learners at the end.

    p3s study run parallel && p3s study export parallel -o results/parallel.parquet
    python benchmarks/many_copies.py results/parallel.parquet

For each task the mean over learners at the last evaluation, one number per seed; then the sum of
ranks, and the sum of the means put between the lowest and the highest of a task. The studies' files
say which of them decides, and were written before the studies ran.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl


def ends(file: Path) -> pl.DataFrame:
    """Mean over learners at the last evaluation of every run."""
    rows = pl.read_parquet(file).unique(["run", "step"])
    last = rows.filter(pl.col("step") == pl.col("step").max().over("run"))
    return last.select("method", "env", "seed", "mean").sort("seed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    found = ends(parser.parse_args().file)
    means = found.group_by("method", "env").agg(pl.col("mean"), pl.col("mean").mean().alias("all"))
    one = pl.col("all")
    lowest, highest = one.min().over("env"), one.max().over("env")
    scored = means.with_columns(
        one.rank(descending=True).over("env").alias("rank"),
        ((one - lowest) / (highest - lowest)).alias("share"),
    )
    envs = scored["env"].unique().sort(descending=True)
    print(f"| mean over learners, one per seed | {' | '.join(envs)} | ranks | shares |")
    print("|---|" + "---|" * (len(envs) + 2))
    total = scored.group_by("method").agg(pl.col("rank").sum(), pl.col("share").sum())
    for method, rank, share in total.sort("share", descending=True).iter_rows():
        own = scored.filter(pl.col("method") == method)
        values = [own.filter(pl.col("env") == env)["mean"].item() for env in envs]
        cells = [", ".join(f"{value:,.0f}" for value in each) for each in values]
        print(f"| {method} | {' | '.join(cells)} | {rank:.0f} | {share:.2f} |")


if __name__ == "__main__":
    main()
