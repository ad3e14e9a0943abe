"""Steps of a ring that belong together: complete episodes, or what was paid between two payments.

    a bag         the steps of a copy that are paid together: with a delay of f steps those between
                  two payments, otherwise an episode, ended by termination or by truncation
    minibatches   steps of complete bags, drawn uniformly with replacement

A bag leaves when the first of its rows is overwritten. So which bags there are follows from the
rows alone. A row says its place in its bag (`bag_step`: k for the k-th step, -k for the last, 0
without a bag), and a resumed run finds the bags again. Where episodes broke off, with a worker or
on a resume that cannot go on with them, no copy has a bag up to the end of its episode: what is
paid there may be for steps that are missing.

Updates may be run ahead of the environments. So they know of a bag only when a further step, or an
exchange of shards, has followed its last row (`lag` rows): then a pending row changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np

from p3s.envs.delay import Delay
from p3s.errors import TrainingStopped
from p3s.experience.episode_links import MARKS

BAG_MARKS = (*MARKS, "bag_step")
"""Fields that a row has besides those of a transition."""
ROW_BYTES = 16
"""Memory beside each row."""
LOST = -1
"""Stands for the number of a bag's first row if that is not in the ring any more."""


@dataclass(slots=True)
class Bag:
    """Steps that are paid together, while they are collected."""

    first: int
    numbers: list[int] = field(default_factory=list)
    total: float = 0.0


class Bags:
    """The complete bags of a replay's ring.

    lag: how many of the latest rows are not looked at yet.
    """

    needed_by: ClassVar[str]
    """What draws from them, for messages."""

    def __init__(self, capacity: int, delay: Delay | None, lag: int) -> None:
        self._capacity, self._lag = capacity, lag
        self._longest = delay if isinstance(delay, int) else None
        self._playing: set[int] = set()
        """The copies within an episode."""
        self._broken: set[int] = set()
        """Those of which some steps of it may be missing."""
        self._open: dict[int, Bag] = {}
        """Bags in progress, by the number of their latest row."""
        self._waiting: deque[Bag] = deque()
        """Bags that are over, and not looked at yet."""
        self._complete: deque[tuple[int, int]] = deque()
        """The first row and the length of each complete bag, in the order of their last rows."""
        self._firsts: list[int] = []
        """The first rows of complete bags, as a heap."""
        self._start, self._count = 0, 0
        # The steps of complete bags, one bag after another, in a ring of their own:
        self._places = np.empty(capacity, np.int32)
        self._indices = np.empty(capacity, np.int32)
        self._lengths = np.empty(capacity, np.int32)

    # ------------------------------------------------------------------ bookkeeping

    def add(
        self, first: int, copies: Sequence[int], ended: Sequence[int], rows: np.ndarray
    ) -> None:
        """Note one step of these copies, and write `bag_step` into its rows, which are records.

        first: the number of the first of the rows. ended: whose episode ended with it.
        """
        rewards, links = rows["reward"].tolist(), rows["steps_back"].astype(int).tolist()
        for index, (copy, steps_back) in enumerate(zip(copies, links, strict=True)):
            number = first + index
            step = 0 if copy in self._broken else self._bag_step(number - steps_back, copy in ended)
            rows["bag_step"][index] = step
            self._note(number, steps_back, step, rewards[index])
        self._playing |= set(copies)
        self._playing -= set(ended)
        self._broken -= set(ended)

    def _bag_step(self, before: int, ends: bool) -> int:
        """`bag_step` of a row after the one with this number."""
        bag = self._open.get(before)
        step = 1 if bag is None else len(bag.numbers) + 1
        return -step if ends or step == self._longest else step

    def _note(self, number: int, steps_back: int, step: int, reward: float) -> None:
        """Put a row into its bag."""
        if step == 0:
            return
        bag = self._open.pop(number - steps_back, None) if steps_back else None
        if bag is None:
            bag = Bag(number if abs(step) == 1 else LOST)
        bag.numbers.append(number)
        bag.total += reward
        if step < 0:
            self._waiting.append(bag)
        else:
            self._open[number] = bag

    def advance(self, num_added: int, num_pending: int) -> bool:
        """Look at the rows as an update after the pending ones does; whether a bag is complete."""
        oldest, known = (num_added + num_pending - count for count in (self._capacity, self._lag))
        while self._firsts and self._firsts[0] < oldest:
            self._drop(heappop(self._firsts))
        while self._waiting and self._waiting[0].numbers[-1] < known:
            bag = self._waiting.popleft()
            if bag.first >= oldest:
                self._enter(bag)
        if self._count == 0 and oldest > self._lag:
            raise TrainingStopped(
                f"the replay of {self._capacity:,} transitions holds no complete episode, which "
                f"{self.needed_by} needs: give more (--buffer-size)"
            )
        return self._count > 0

    def _enter(self, bag: Bag) -> None:
        """Put a bag after the others."""
        length = len(bag.numbers)
        slots = self._slots(self._count, length)
        places = np.array(bag.numbers) % self._capacity
        self._places[slots], self._indices[slots] = places, np.arange(length)
        self._lengths[slots] = length
        self._count += length
        self._complete.append((bag.first, length))
        heappush(self._firsts, bag.first)
        self._entered(places, bag.total)

    def _entered(self, places: np.ndarray, total: float) -> None:
        """A bag has been completed: the places of its steps, and what it was paid."""

    def _dropped(self, places: np.ndarray) -> None:
        """The bag with its steps in these places is leaving."""

    def _drop(self, first: int) -> None:
        """Take out the bag with this first row; those before it move up."""
        earlier = [length for _, length in takewhile(lambda bag: bag[0] != first, self._complete)]
        before, length = sum(earlier), self._complete[len(earlier)][1]
        self._dropped(self._places[self._slots(before, length)])
        old, new = self._slots(0, before), self._slots(length, before)
        for own in (self._places, self._indices, self._lengths):
            own[new] = own[old]
        del self._complete[len(earlier)]
        self._start = (self._start + length) % self._capacity
        self._count -= length

    def _slots(self, first: int, count: int) -> np.ndarray:
        """This many steps of complete bags, from the `first` on."""
        return (self._start + first + np.arange(count)) % self._capacity

    # ------------------------------------------------------------------ what updates take

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Places of steps of complete bags, drawn uniformly with replacement."""
        return self._places[self._draw_slots(rng, shape)]

    def draw_bags(self, rng: np.random.Generator, count: int) -> list[np.ndarray]:
        """The places of all steps of some bags, drawn with chances like their lengths."""
        slots = self._draw_slots(rng, (count,))
        starts, lengths = slots - self._indices[slots], self._lengths[slots]
        return [
            self._places[(start + np.arange(length)) % self._capacity]
            for start, length in zip(starts, lengths, strict=True)
        ]

    def _draw_slots(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return (self._start + rng.integers(0, self._count, shape)) % self._capacity

    def largest_reward(self, stored: float) -> float:
        """The largest that learners are paid; stored: the largest that is in the replay."""
        return stored

    # ------------------------------------------------------------------ out and in

    def cut(self) -> None:
        """Some of the episodes in progress will not continue."""
        self._open.clear()
        self._broken |= self._playing

    def snapshot(self) -> dict[str, Any]:
        """Values from which `resume` continues, with the rows."""
        return {"broken_copies": sorted(self._broken)}

    def resume(
        self, values: dict[str, Any], num_added: int, rows: np.ndarray, latest: dict[int, int]
    ) -> None:
        """Continue from a snapshot.

        rows: all of the ring, as records. latest: for each copy within an episode, the number of
        its latest row.
        """
        self._playing, self._broken = set(latest), set(values["broken_copies"])
        numbers = np.arange(max(0, num_added - self._capacity), num_added)
        found = rows[numbers % self._capacity]
        marks = (found[name].astype(int).tolist() for name in BAG_MARKS)
        for noted in zip(numbers.tolist(), *marks, found["reward"].tolist(), strict=True):
            self._note(*noted)
        going_on = set(latest.values()) & set(self._open)
        self._open = {number: self._open[number] for number in going_on}
