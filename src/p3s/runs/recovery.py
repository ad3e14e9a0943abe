"""A run whose shards are lost continues from its last checkpoint, on the machines that are left.

A checkpoint holds all parts of a run at one step, and the records are cut back to it, so the run
ends as if nothing had happened.
"""

from __future__ import annotations

from p3s.errors import ShardLost
from p3s.runs import opening
from p3s.runs.records import RunFolder
from p3s.train import Training

MOST_LOSSES = 3
"""Losses without a new checkpoint in between after which a run is given up."""


class Recovery:
    """Reopens a run, as often as it gets on in between."""

    def __init__(self) -> None:
        self._resumed_at, self._losses = -1, 0

    def reopened(self, training: Training, error: ShardLost) -> Training:
        """The run at its last checkpoint; the error again if it does not get on."""
        assert isinstance(training.folder, RunFolder)
        path = training.folder.path
        training.close()
        while self._losses < MOST_LOSSES:
            self._losses += 1
            try:
                reopened, _ = opening.reopen(path)
            except ShardLost:
                continue
            if reopened.total_steps > self._resumed_at:
                self._resumed_at, self._losses = reopened.total_steps, 1
            return reopened
        raise error
