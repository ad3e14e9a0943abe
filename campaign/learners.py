"""Learners that are spoiled: one is turned into NaN or infinity in the middle of a run.

stop      the run ends within one period, and names the learner
replace   the run goes on; the lineage names the learner; the others are the same to the bit
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.helpers import small_config
from tests.helpers_faults import MakeFault, learner_leaves, poison

from campaign import Result
from p3s.errors import TrainingStopped
from p3s.learning.divergence import diverged_learners
from p3s.train import Training

STEPS = 240
CASES = (
    ("p3s", "td3"),
    ("p3s", "sac"),
    ("sharing", "ddpg"),
    ("resetting", "td3"),
    ("center", "td3"),
    ("pbt", "td3"),
    ("sharing", "sac_2018"),
)
OTHERS = (0, 2, 3)
VALUES = {"NaN": np.nan, "infinity": np.inf}


def run(short: bool) -> Result:
    """Spoil policies and values under every scheme whose learners learn side by side."""
    losses: list[str] = []
    tried = 0
    values = {"NaN": np.nan} if short else VALUES
    for scheme, algorithm in CASES[:1] if short else CASES:
        for part in ("policy", "value"):
            for name, value in values.items():
                for treatment in (stops, replaces):
                    tried += 1
                    problem = treatment(scheme, algorithm, part, value)
                    if problem is not None:
                        case = f"{scheme}-{algorithm}, {name} in the {part}"
                        losses.append(f"{case}, {treatment.__name__}: {problem}")
    return Result("learners spoiled", tried, len(losses), losses)


def begin(scheme: str, algorithm: str, **fields: Any) -> Training:
    """A run after some learning."""
    config = small_config(None, scheme, algorithm=algorithm, evaluation_period=0, **fields)
    training = Training(config, MakeFault("none", at=STEPS * STEPS))
    training.run(STEPS)
    return training


def stops(scheme: str, algorithm: str, part: str, value: float) -> str | None:
    """What is wrong with how a run stops."""
    training = begin(scheme, algorithm)
    poison(training, 1, part, value)
    try:
        training.run(STEPS + 4 * training.scheme.review_period)
    except TrainingStopped as error:
        return None if "learner 1" in str(error) else f"named otherwise: {error}"
    finally:
        training.close()
    return "not found within a period"


def replaces(scheme: str, algorithm: str, part: str, value: float) -> str | None:
    """What is wrong with how a learner is replaced."""
    training = begin(scheme, algorithm, on_divergence="replace")
    rows: list[dict[str, Any]] = []
    training.folder.append = lambda stream, row: rows.append(row)
    before = [learner_leaves(training, learner) for learner in OTHERS]
    poison(training, 1, part, value)
    try:
        training.check_learners()
        after = [learner_leaves(training, learner) for learner in OTHERS]
        training.run(STEPS + 4 * training.scheme.review_period)
    except TrainingStopped as error:
        return f"stopped: {error}"
    finally:
        training.close()
    if [row["replaced"] for row in rows if "replaced" in row] != [[1]]:
        return "the lineage does not say so"
    if diverged_learners(training.scheme, training.crew.updater.state):
        return "a learner is not finite"
    same = all(
        np.array_equal(now, old)
        for ours, theirs in zip(after, before, strict=True)
        for now, old in zip(ours, theirs, strict=True)
    )
    return None if same else "the others changed"
