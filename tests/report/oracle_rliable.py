"""Numbers of rliable, which test_statistics.py compares with.

Not a test: rliable needs packages of its own, so it runs in an environment of its own.

    python -m venv oracle && oracle/bin/pip install rliable==1.2.0 'pandas<3'
    cd tests/report && ../../oracle/bin/python oracle_rliable.py > oracle_rliable.json
"""

from __future__ import annotations

import json

import numpy as np
from rliable import library, metrics


def main() -> None:
    rng = np.random.default_rng(7)
    # rliable has (runs, tasks); ours are strata, (tasks, runs).
    ours = rng.normal([0.6, 0.9, 1.2, 0.4], 0.3, (8, 4)).round(4)
    theirs = rng.normal([0.5, 0.8, 0.9, 0.5], 0.3, (6, 4)).round(4)
    thresholds = np.linspace(0.0, 1.5, 11)
    profiles, _ = library.create_performance_profile({"ours": ours}, thresholds, reps=10)
    _, intervals = library.get_interval_estimates(
        {"ours": ours}, lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=50_000
    )
    numbers = {
        "ours": ours.T.tolist(),
        "theirs": theirs.T.tolist(),
        "thresholds": thresholds.tolist(),
        "iqm": float(metrics.aggregate_iqm(ours)),
        "mean": float(metrics.aggregate_mean(ours)),
        "optimality_gap": float(metrics.aggregate_optimality_gap(ours)),
        "probability_of_improvement": float(metrics.probability_of_improvement(ours, theirs)),
        "profile": profiles["ours"].tolist(),
        "iqm_interval": intervals["ours"][:, 0].tolist(),
    }
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
