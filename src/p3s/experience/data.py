"""Transitions from before the run: a share of every minibatch comes from them, for good.

They are kept beside the ring and never overwritten. Which of them an update draws follows from
seed and update, by a stream of its own: what it draws from the ring is no different for it. A
checkpoint holds their checksum only, since they can be read again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from p3s import keys
from p3s.errors import UserError
from p3s.experience.episode_links import following_steps, rows_of_steps
from p3s.experience.rows import fields
from p3s.types import EnvSpec

CHECKSUM = "data_checksum"


@dataclass(frozen=True)
class Data:
    """Transitions as rows of a replay without marks, (count, columns).

    following: for each row the place of the next step of its episode, or NONE.
    source: where they were read from.
    """

    spec: EnvSpec
    rows: np.ndarray
    following: np.ndarray
    source: str

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def checksum(self) -> int:
        """Of the rows and their order."""
        return zlib.crc32(self.following.tobytes(), zlib.crc32(self.rows.data))

    def describe(self) -> str:
        """How many, and where they are from."""
        return f"the {len(self):,} of {self.source}"

    def take(
        self, seed: int, update: int, shape: tuple[int, int], own: slice, num_steps: int
    ) -> np.ndarray:
        """Rows drawn uniformly with replacement, in returns over so many steps.

        own: of the first axis only these; they are the same whoever draws them.
        """
        places = keys.generator(seed, "data", update).integers(0, len(self), shape)[own]
        if num_steps == 1:
            return self.rows[places]
        steps = following_steps(self.following, places, num_steps)
        return rows_of_steps(self.spec, self.rows, steps, ())

    def largest_reward(self) -> float:
        """The largest reward in size."""
        return float(np.abs(fields(self.rows, self.spec)["reward"]).max())

    def snapshot(self) -> dict[str, Any]:
        """By what `resume` knows them again."""
        return {CHECKSUM: self.checksum}

    def resume(self, values: dict[str, Any]) -> None:
        """Refuse to continue with other transitions than the run had."""
        if values.get(CHECKSUM) != self.checksum:
            raise UserError(
                f"{self.source} is not what it was when the run began: a run goes on with the "
                "data that it had",
                "data",
            )
