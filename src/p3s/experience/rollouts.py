"""Steps in order, for the algorithms that learn from their own latest steps only.

A row is a replay's row with two more fields: whether an episode ended there, and 1. Rows of zeros
pad a rollout to a multiple of `rollout_steps`, so that rollouts of whole episodes, which differ in
length, need one compiled program or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s.experience import Batches
from p3s.experience.normalization import Normalizer, normalize
from p3s.experience.rows import empty_rows, fields, unpack
from p3s.types import Array, EnvSpec, Rollout, Transition

MARKS = ("ended", "present")


class RolloutBuffer:
    """The rows of one environment copy since the last update."""

    ring = None  # a snapshot holds every row

    def __init__(self, spec: EnvSpec, padded_to: int, normalizer: Normalizer) -> None:
        self._spec, self._padded_to = spec, padded_to
        self._normalizer = normalizer
        self._rows: list[np.ndarray] = []

    def add(self, transitions: Transition, copies: Sequence[int], ended: Sequence[int]) -> None:
        """Append one transition, with its observations as the policy saw them."""
        row = empty_rows(1, self._spec, MARKS)
        view = fields(row, self._spec, MARKS)
        for name, values in transitions._asdict().items():
            seen = normalize(values, self._normalizer.scaling) if "observation" in name else values
            view[name] = np.reshape(seen, view[name].shape)
        view["ended"], view["present"] = bool(ended), 1
        self._rows.append(row[0])

    def take(self, update: int, num_batches: int, num_pending: int) -> Batches | None:
        """All rows, padded, as one minibatch; none are left."""
        if num_pending:
            return None
        count = len(self._rows)
        padded = -(-count // self._padded_to) * self._padded_to
        rows = np.zeros_like(empty_rows(padded, self._spec, MARKS))
        rows[:count] = self._rows
        self._rows = []
        return Batches(rows[None], None)

    def observations(self, rng: np.random.Generator) -> np.ndarray:
        return fields(np.array(self._rows), self._spec, MARKS)["observation"]

    def largest_reward(self) -> float | None:
        return None

    @staticmethod
    def unpack(spec: EnvSpec, rows: Array) -> Rollout:
        found = unpack(spec, rows, MARKS)
        ended, present = (found.pop(name) for name in MARKS)
        return Rollout(Transition(**found), ended, present)

    def cut(self) -> None:
        if self._rows:
            fields(self._rows[-1], self._spec, MARKS)["ended"] = 1

    def describe(self) -> str:
        return "no replay: only the latest steps"

    def snapshot(self) -> dict[str, Any]:
        columns = empty_rows(0, self._spec, MARKS)
        return {"rows": np.array(self._rows, columns.dtype).reshape(-1, columns.shape[1])}

    def resume(self, values: dict[str, Any]) -> None:
        self._rows = list(values["rows"].copy())
