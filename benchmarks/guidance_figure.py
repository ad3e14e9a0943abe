"""Draw how the chief of a P3S run adapted β: docs/images/guidance.svg.

    p3s train InvertedDoublePendulum-v5 --preset authors --hidden-sizes 64 64 --d-min 0.02 \
        --steps 30000 --out RUN
    python benchmarks/guidance_figure.py RUN --out docs/images/guidance.svg

Reads config.json and lineage.jsonl of the run folder. Above: β after each review. Below: spread and
change, and the band around the search radius within which β stays.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

from p3s.chief import BAND, search_radius

COLORS = {"beta": "#444444", "spread": "#0072b2", "change": "#d55e00", "radius": "#999999"}


def read_lineage(run: Path) -> dict[str, np.ndarray]:
    """Steps, β, spread, change and search radius of every review that measured them."""
    fields = json.loads((run / "config.json").read_text())["scheme_fields"]
    lines = (run / "lineage.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("spread") is not None]
    if not rows:
        raise SystemExit(f"{run} has no spread in its lineage: is it a run of the scheme p3s?")
    columns = {name: np.array([row[name] for row in rows]) for name in ("step", "beta")}
    columns |= {name: np.array([row[name] for row in rows]) for name in ("spread", "change")}
    columns["radius"] = np.array(
        [search_radius(change, fields["rho"], fields["d_min"]) for change in columns["change"]]
    )
    return columns


def draw(columns: dict[str, np.ndarray], out: Path) -> None:
    """Two panels over environment steps; the same numbers give the same file."""
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "p3s", "font.size": 9}
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(7, 4.6), sharex=True, height_ratios=(1, 1.6), layout="constrained"
    )
    step, radius = columns["step"], columns["radius"]
    above.step(step, columns["beta"], where="post", color=COLORS["beta"])
    above.set_yscale("log", base=2)
    above.set_ylabel("β")
    below.fill_between(
        step, radius / BAND, radius * BAND, color=COLORS["radius"], alpha=0.35, linewidth=0,
        label="β stays: within a factor 1.5 of max(ρ D_change, d_min)",
    )  # fmt: skip
    below.plot(
        step, columns["spread"], "o-", markersize=3, color=COLORS["spread"], label="D_spread"
    )
    below.plot(
        step, columns["change"], "s-", markersize=3, color=COLORS["change"], label="D_change"
    )
    below.set_yscale("log")
    below.set_xlabel("environment steps, all learners together")
    below.set_ylabel("distance between policies")
    below.legend(frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Draw one run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images/guidance.svg"))
    options = parser.parse_args()
    draw(read_lineage(options.run), options.out)
    print(options.out)


if __name__ == "__main__":
    main()
