"""What a run has learned, as arrays by name: taken out, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from p3s.errors import UserError, unknown
from p3s.learning.crew import Crew
from p3s.train import Training


def learned_arrays(training: Training) -> dict[str, np.ndarray]:
    """All that is learned by name: networks, targets, optimizers, stacked over the learners."""
    training.crew.catch_up()
    if isinstance(training.crew, Crew):
        return training.crew.updater.snapshot()
    return training.crew.snapshot()["state"]


def put_learned_arrays(
    training: Training, arrays: Mapping[str, Any], exact_match: bool = True
) -> None:
    """Put arrays by these names in place of what is learned; UserError if one does not fit.

    exact_match: whether every name must be given; without it, others stay as they are.
    """
    if not isinstance(training.crew, Crew):
        raise UserError("parameters can be set in a run without shards only")
    before = learned_arrays(training)
    for name in arrays:
        if name not in before:
            raise unknown("parameter", name, before)
    given = {
        name: np.asarray(value, before[name].dtype if np.isscalar(value) else None)
        for name, value in arrays.items()
    }
    training.crew.updater.resume(given if exact_match else {**before, **given})
