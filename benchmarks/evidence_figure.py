"""Draw the picture that README opens with, from the results of the study `laptop`.

    python benchmarks/evidence_figure.py results/laptop.parquet docs/images/evidence.svg

Each line is the interquartile mean, over environments and seeds, of the normalized return of a
method's champion, against the share of the environment's steps. Scale and tasks are those of the
report (see claims.py). Bands are 95 % intervals, for TD3 and P3S only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.figure
import numpy as np

from claims import Returns, in_group
from p3s.report import statistics
from p3s.report.export import load_results
from p3s.report.figures import COLORS, RC

ORDER = ("P3S", "TD3", "ESO", "Re", "DRL")
BANDS = ("P3S", "TD3")
POINTS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    returns, rng = Returns(load_results(options.results)), np.random.default_rng(0)
    shares = np.linspace(0, 1, POINTS)
    with matplotlib.rc_context(RC):
        figure = matplotlib.figure.Figure(figsize=(8.4, 3.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for panel, group in zip(panels, ("dense", "sparse"), strict=True):
            envs = in_group(returns.envs, group)
            for index, method in enumerate(ORDER):
                if method not in returns.methods:
                    continue
                middle, low, high = [], [], []
                for share in shares:
                    strata = [returns.at(method, env, share * returns.last[env]) for env in envs]
                    middle.append(float(statistics.iqm(strata)))
                    if method in BANDS:
                        ends = statistics.percentile_interval(
                            statistics.iqm, strata, rng, resamples=2000
                        )
                        low.append(ends.low)
                        high.append(ends.high)
                wide = 2.2 if method in BANDS else 1.2
                panel.plot(shares, middle, label=method, color=COLORS[index], linewidth=wide)
                if low:
                    panel.fill_between(
                        shares, low, high, color=COLORS[index], alpha=0.15, linewidth=0
                    )
            panel.set_title(f"{group} rewards: {len(envs)} tasks", fontsize=10)
            panel.set_xlabel("share of the task's environment steps")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        panels[0].set_ylabel("IQM of normalized return")
        panels[1].legend(loc="upper left")
        figure.savefig(options.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
