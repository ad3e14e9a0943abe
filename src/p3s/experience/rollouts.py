"""Steps in order, for the algorithms that learn from their own latest steps only.

A row is a replay's row and two columns more: whether an episode ended there, and 1. Rows of zeros
fill up to a multiple of `rollout_steps`, so that rollouts of whole episodes, which differ in
length, take one program, or two.
"""

from __future__ import annotations

import numpy as np

from p3s.algorithms import Algorithm
from p3s.algorithms.on_policy import OnPolicy
from p3s.experience.normalization import Scaling, normalise
from p3s.types import Array, EnvSpec, Rollout, unpack


class RolloutRows:
    """The rows since the last update, of one environment copy."""

    def __init__(self, spec: EnvSpec, padded_to: int) -> None:
        self._spec = spec
        self._width, self._padded_to = spec.row_size + 2, padded_to
        self._rows: list[np.ndarray] = []

    def add(self, row: np.ndarray, scaling: Scaling | None, ended: bool) -> None:
        """Append a packed transition, (row_size,), with its observations as the policy saw them."""
        row = np.concatenate([row, np.array([ended, 1], np.float32)])
        size, last = self._spec.observation_size, self._spec.row_size
        for part in (slice(0, size), slice(last - size, last)):
            row[part] = normalise(row[part], scaling)
        self._rows.append(row)

    def end_episode(self) -> None:
        """The episode of the last row will not go on."""
        if self._rows:
            self._rows[-1][-2] = 1

    def take(self) -> np.ndarray:
        """All rows, filled up, (1, rows, row_size + 2); none are left."""
        count = len(self._rows)
        padded = -(-count // self._padded_to) * self._padded_to
        rows = np.zeros((1, padded, self._width), np.float32)
        rows[0, :count] = self._rows
        self._rows = []
        return rows

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays from which `resume` goes on."""
        return {"rows": np.array(self._rows, np.float32).reshape(-1, self._width)}

    def resume(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        self._rows = list(arrays["rows"].copy())


def rollout_rows(algorithm: Algorithm, spec: EnvSpec) -> RolloutRows | None:
    """Where an on-policy algorithm keeps its steps; None for any other, which has the replay."""
    if not isinstance(algorithm, OnPolicy):
        return None
    return RolloutRows(spec, padded_to=algorithm.rollout_steps)


def unpack_rollout(spec: EnvSpec, rows: Array) -> Rollout:
    """Read packed rows back, (..., rows, row_size + 2)."""
    return Rollout(unpack(spec, rows[..., :-2]), rows[..., -2], rows[..., -1])
