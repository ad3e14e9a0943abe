"""Which row of a ring follows which, and what several steps from a row on amount to.

Copies write their rows in turns, and not all copies step every time. So each row says how many rows
earlier the step before it is (`steps_back`, 0 for the first step of an episode). A checkpoint holds
that and each copy's latest row: what follows a row is found again from it.

A return of n steps from a row on has n rewards and n discounts. Steps end early with an episode, or
at a copy's latest row. With m the steps taken:

    rewards    r_1 ... r_m 0 ... 0
    discounts  0 ... 0 d_m 0 ... 0        d_m = 1 - terminated, in place m
    next_observation                      that of step m: after a truncation, the true final one

`off_policy.bootstrap` makes y = sum_k gamma^(k-1) (r_k + gamma discounts_k V(s')) of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from p3s.experience.rows import empty_rows, fields
from p3s.types import EnvSpec

MARKS = ("steps_back",)
"""Fields that a row has besides those of a transition."""
NONE = -1


class EpisodeLinks:
    """The order of steps among the rows of a ring."""

    def __init__(self, capacity: int) -> None:
        self.following = np.full(capacity, NONE)
        """For each place of the ring, the place of the next step of the same episode, or NONE."""
        self.latest: dict[int, int] = {}
        """For each copy within an episode, the number of its latest row."""

    def add(self, first: int, copies: Sequence[int], ended: Sequence[int]) -> np.ndarray:
        """Note one step of these copies, whose episode may end with it; `steps_back` of their rows.

        first: the number of the first of these rows, counted from the start of the run.
        """
        capacity, steps_back = len(self.following), np.zeros(len(copies), np.float32)
        for index, copy in enumerate(copies):
            number = first + index
            self.following[number % capacity] = NONE
            before = self.latest.pop(copy, None)
            if before is not None and number - before < capacity:
                steps_back[index] = number - before
                self.following[before % capacity] = number % capacity
            if copy not in ended:
                self.latest[copy] = number
        return steps_back

    def cut(self) -> None:
        """The episodes in progress will not continue."""
        self.latest.clear()

    def find(self, num_added: int, steps_back: np.ndarray) -> None:
        """What follows each row, from the `steps_back` of all places of the ring."""
        capacity = len(self.following)
        oldest = max(0, num_added - capacity)
        numbers = np.arange(oldest, num_added)
        steps = steps_back[numbers % capacity].astype(np.int64)
        linked = (steps > 0) & (numbers - steps >= oldest)
        self.following[:] = NONE
        self.following[(numbers - steps)[linked] % capacity] = numbers[linked] % capacity

    def steps_from(self, places: np.ndarray, num_steps: int) -> np.ndarray:
        """The places of the steps from each place on, (num_steps, ...); NONE after an end."""
        return following_steps(self.following, places, num_steps)

    def is_open(self, places: np.ndarray) -> bool:
        """Whether an episode in progress may go on after one of these places."""
        latest = np.array(list(self.latest.values()), np.int64) % len(self.following)
        return bool(np.isin(places, latest).any())

    def snapshot(self) -> dict[str, Any]:
        """Values from which `resume` continues."""
        return {"latest": [[copy, number] for copy, number in sorted(self.latest.items())]}

    def resume(self, values: dict[str, Any], num_added: int, steps_back: np.ndarray) -> None:
        """Continue from a snapshot, with the rows in place."""
        self.latest = {int(copy): int(number) for copy, number in values["latest"]}
        self.find(num_added, steps_back)


def following_steps(following: np.ndarray, places: np.ndarray, num_steps: int) -> np.ndarray:
    """The places of the steps from each place on, (num_steps, ...); NONE after an end."""
    found = np.full((num_steps, *places.shape), NONE)
    found[0] = places
    for before, after in pairwise(found):
        after[...] = np.where(before == NONE, NONE, following[before])
    return found


def rows_of_steps(
    spec: EnvSpec,
    rows: np.ndarray,
    steps: np.ndarray,
    marks: Sequence[str] = MARKS,
    rewards: np.ndarray | None = None,
) -> np.ndarray:
    """The returns over these steps as rows, (..., columns).

    rows: all of a ring. steps: places, (num_steps, ...), NONE after the last step of each.
    rewards: of the steps, if not those of the rows.
    """
    num_steps, taken = len(steps), steps != NONE
    last = taken.sum(axis=0) - 1
    ring = fields(rows, spec, marks)
    joined = empty_rows(steps[0].size, spec, num_steps=num_steps)
    joined = joined.reshape(*steps[0].shape, joined.shape[-1])
    view = fields(joined, spec, num_steps=num_steps)
    first, final = steps[0], np.take_along_axis(steps, last[None], axis=0)[0]
    view["observation"], view["action"] = ring["observation"][first], ring["action"][first]
    rewards = ring["reward"][steps] if rewards is None else rewards
    view["reward"] = np.moveaxis(np.where(taken, rewards, 0), 0, -1)
    view["discount"] = 0
    np.put_along_axis(view["discount"], last[..., None], ring["discount"][final][..., None], -1)
    view["next_observation"] = ring["next_observation"][final]
    return joined
