"""The replay that all learners share: a ring of rows.

What an update draws follows from the run's seed and the update's number, so it is known before
the step whose transitions it may or may not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p3s import keys
from p3s.errors import UserError
from p3s.experience import Batches
from p3s.experience.bags import BAG_MARKS, ROW_BYTES, Bags
from p3s.experience.credit import Credit
from p3s.experience.data import Data
from p3s.experience.episode_links import MARKS, NONE, EpisodeLinks, rows_of_steps
from p3s.experience.hindsight import Hindsight
from p3s.experience.normalization import Normalizer, normalize
from p3s.experience.reward_scale import RewardScale
from p3s.experience.rows import (
    empty_rows,
    fields,
    pack,
    record,
    unpack_transitions,
    without_marks,
)
from p3s.machine import available_memory
from p3s.types import Array, EnvSpec, Transition

EVERYTHING = slice(None)


class Ring:
    """A ring buffer of rows; the oldest are overwritten when it is full."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.num_added = 0

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return len(self.rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.rows[:1].nbytes

    @property
    def size(self) -> int:
        """Rows that are filled."""
        return min(self.num_added, self.capacity)

    def add(self, rows: np.ndarray) -> None:
        """Append rows, (count, columns)."""
        for row in rows:
            self.rows[self.num_added % self.capacity] = row
            self.num_added += 1

    def append(self, rows: np.ndarray) -> None:
        """`add` for many rows."""
        rows = np.ascontiguousarray(rows)
        while len(rows):
            place = self.num_added % self.capacity
            piece, rows = np.split(rows, [min(self.capacity - place, len(rows))])
            self.load(place, piece.tobytes())
            self.num_added += len(piece)

    def load(self, start: int, data: bytes) -> None:
        """Put rows in this place, from their bytes; `num_added` says which places count."""
        rows = np.frombuffer(data, self.rows.dtype).reshape(-1, self.rows.shape[1])
        self.rows[start : start + len(rows)] = rows

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_pending: int = 0
    ) -> np.ndarray | None:
        """Rows drawn uniformly with replacement, shape + (columns,); None as in `draw`."""
        places = self.draw(rng, shape, num_pending)
        return None if places is None else self.rows[places]

    def draw(
        self,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        num_pending: int = 0,
        own: slice = EVERYTHING,
        num_own: int = 0,
    ) -> np.ndarray | None:
        """Places of rows drawn uniformly with replacement.

        num_pending: draw as if this many more rows had been added; None if one of those is drawn.
        own: of the first axis only these; they are the same whoever draws them.
        num_own: of the last axis, this many are drawn from the rows of one writer; the first axis
        counts the writers, which have added their rows in turns.
        """
        filled = min(self.num_added + num_pending, self.capacity)
        places = rng.integers(0, filled, shape)
        if num_own:
            places[:, :num_own] = self._draw_own(rng, (shape[0], num_own), filled, num_pending)
        places = places[own]
        if num_pending and ((places - self.num_added) % self.capacity < num_pending).any():
            return None
        return places

    def _draw_own(
        self, rng: np.random.Generator, shape: tuple[int, int], filled: int, num_pending: int
    ) -> np.ndarray:
        """Places of rows of writer 0, 1, ...: row k was added by writer k modulo their number."""
        writers = np.arange(shape[0])[:, None]
        end = self.num_added + num_pending
        oldest = end - filled
        first = oldest + (writers - oldest) % shape[0]
        counts = -((first - end) // shape[0])
        turns = np.floor(rng.random(shape) * counts).astype(np.int64)
        return (first + shape[0] * turns) % self.capacity


class Replay:
    """The shared experience of a run.

    num_steps: of the returns that minibatches hold.
    own: the learners that learn from it here, if not all of them do.
    reward_scale: what the rewards of minibatches are divided by, if they are.
    own_share: the part of a minibatch that comes from its learner's own rows.
    bags: complete episodes, if steps are rewarded by them or get new goals from them.
    data, data_share: transitions from before the run, and the part of a minibatch from them.
    """

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        batch_size: int,
        seed: int,
        normalizer: Normalizer,
        num_steps: int = 1,
        own: slice = EVERYTHING,
        reward_scale: RewardScale | None = None,
        own_share: float = 0.0,
        bags: Bags | None = None,
        data: Data | None = None,
        data_share: float = 0.0,
    ) -> None:
        self._bags, self._data = bags, data
        self._num_from_data = 0 if data is None else round(data_share * batch_size)
        self._spec, self._batch_size, self._seed = spec, batch_size, seed
        self._normalizer, self._num_steps, self._own = normalizer, num_steps, own
        marked, linked = reward_scale is not None, num_steps > 1 or bags is not None
        self._links = EpisodeLinks(capacity) if linked else None
        from_ring = batch_size - self._num_from_data
        self._rewards, self._num_own = reward_scale, round(own_share * from_ring)
        self._marks = MARKS if marked or linked else ()
        if bags is not None:
            self._marks = BAG_MARKS
        self._note, self.ring = self._make_ring(capacity)

    def _make_ring(self, capacity: int) -> tuple[str, Ring]:
        """The ring, and one line about the memory that it takes; UserError if it will not fit."""
        with_bags = self._bags is not None
        about = capacity, self._spec, self._num_steps, self._rewards is not None, with_bags
        return check_memory(*about), Ring(empty_rows(capacity, self._spec, self._marks))

    def add(self, transitions: Transition, copies: Sequence[int], ended: Sequence[int]) -> None:
        self.insert(self.pack(transitions, copies, ended), copies)

    def pack(
        self, transitions: Transition, copies: Sequence[int], ended: Sequence[int]
    ) -> np.ndarray:
        """One step of these copies as rows for `insert`, here or in another replica."""
        rows = pack(self._spec, transitions, self._marks)
        if self._marks:
            view = fields(rows, self._spec, self._marks)
            view["steps_back"] = [copy in ended for copy in copies]
        return rows

    def insert(self, rows: np.ndarray, copies: Sequence[int]) -> None:
        """Store one step of these copies; `steps_back` still says whose episode ended with it."""
        if self._marks:
            view = fields(rows, self._spec, self._marks)
            ended = [copy for copy, over in zip(copies, view["steps_back"], strict=True) if over]
            first = self.ring.num_added
            if self._rewards is not None:
                self._rewards.see(view["reward"], copies, ended)
            if self._links is not None:
                view["steps_back"] = self._links.add(first, copies, ended)
            if self._bags is not None:
                self._bags.add(first, copies, ended, view)
        self.ring.add(rows)

    def fill(self, data: Data) -> None:
        """Store all of these, in their order, as if one more copy had played them."""
        if not self._marks:
            self.ring.append(data.rows)
            return
        view, copy = fields(data.rows, self._spec), -1
        for place, following in enumerate(data.following.tolist()):
            step = Transition(*(view[name][place, None] for name in Transition._fields))
            self.add(step, [copy], [copy] if following == NONE else [])

    def observations_of(self, rows: np.ndarray) -> np.ndarray:
        """What was acted on in these rows, (rows, ...)."""
        return fields(rows, self._spec, self._marks)["observation"]

    def take(self, update: int, num_batches: int, num_pending: int) -> Batches | None:
        rng = keys.generator(self._seed, "replay", update)
        shape = num_batches, self._batch_size - self._num_from_data
        if self._bags is not None and self._bags.advance(self.ring.num_added, num_pending):
            rows = self._rows_of_bags(self._bags, update, rng, shape)
        else:
            places = self.ring.draw(rng, shape, num_pending, self._own, self._num_own)
            rows = None if places is None else self._rows_at(places, num_pending)
        if rows is None:
            return None
        if self._data is not None:
            shape = num_batches, self._num_from_data
            more = self._data.take(self._seed, update, shape, self._own, self._num_steps)
            rows = np.concatenate([rows, more], axis=1)
        if self._rewards is not None:
            view = fields(rows, self._spec, num_steps=self._num_steps)
            view["reward"] /= self._rewards.divisor(num_pending > 0)
        return Batches(rows, self._normalizer.scaling)

    def _rows_at(self, places: np.ndarray, num_pending: int) -> np.ndarray | None:
        """What minibatches hold of these places; None if a pending row may belong to it."""
        if self._links is None or self._num_steps == 1:
            rows = self.ring.rows[places]
            return without_marks(rows, self._spec) if self._marks else rows
        steps = self._links.steps_from(places, self._num_steps)
        if num_pending and self._links.is_open(steps[:-1]):
            return None
        return rows_of_steps(self._spec, self.ring.rows, steps, self._marks)

    def _rows_of_bags(
        self, bags: Bags, update: int, rng: np.random.Generator, shape: tuple[int, int]
    ) -> np.ndarray:
        """What minibatches hold of complete episodes."""
        if isinstance(bags, Hindsight):
            return bags.take(rng, shape, self._own, self.ring.rows)
        assert isinstance(bags, Credit)
        bags.learn(update, self.ring.rows, self._normalizer.scaling)
        return self._credited_rows(bags, bags.draw(rng, shape)[self._own])

    def _credited_rows(self, credit: Credit, places: np.ndarray) -> np.ndarray:
        """What minibatches hold of these places, with the rewards that credit gives them.

        A return of several steps ends where the steps with credit do.
        """
        ring, scaling = self.ring.rows, self._normalizer.scaling
        if self._num_steps == 1:
            rows = without_marks(ring[places], self._spec)
            fields(rows, self._spec)["reward"] = credit.rewards(places, ring, scaling)
            return rows
        assert self._links is not None
        steps = credit.with_credit(self._links.steps_from(places, self._num_steps))
        rewards = credit.rewards(steps, ring, scaling)
        return rows_of_steps(self._spec, ring, steps, self._marks, rewards)

    def observations(self, rng: np.random.Generator) -> np.ndarray:
        rows = self.ring.sample(rng, (self._batch_size,))
        assert rows is not None
        return normalize(self.observations_of(rows), self._normalizer.scaling)

    def largest_reward(self) -> float | None:
        rows = fields(self.ring.rows[: self.ring.size], self._spec, self._marks)
        largest = float(np.abs(rows["reward"]).max(initial=0.0))
        largest = largest if self._bags is None else self._bags.largest_reward(largest)
        return largest if self._data is None else max(largest, self._data.largest_reward())

    @staticmethod
    def unpack(spec: EnvSpec, rows: Array) -> Transition:
        return unpack_transitions(spec, rows)

    def cut(self) -> None:
        for part in self._parts:
            part.cut()

    def describe(self) -> str:
        parts = [self._note] if self._bags is None else [self._note, self._bags.needed_by]
        if self._data is not None:
            parts.append(f"{self._num_from_data} of a minibatch from {self._data.describe()}")
        return "; ".join(parts)

    def snapshot(self) -> dict[str, Any]:
        # Checkpoints write the ring, in segments.
        parts = [*self._parts, *([] if self._data is None else [self._data])]
        return {name: value for part in parts for name, value in part.snapshot().items()}

    def resume(self, values: dict[str, Any]) -> None:
        rows = fields(self.ring.rows, self._spec, self._marks)
        if self._links is not None:
            self._links.resume(values, self.ring.num_added, rows["steps_back"])
            if self._bags is not None:
                latest = self._links.latest
                self._bags.resume(values, self.ring.num_added, rows, latest)
        if self._rewards is not None:
            self._rewards.resume(values)
        if self._data is not None:
            self._data.resume(values)

    @property
    def _parts(self) -> list[EpisodeLinks | RewardScale | Bags]:
        """What it remembers besides the rows."""
        parts = (self._links, self._rewards, self._bags)
        return [part for part in parts if part is not None]


def memory_needed(
    capacity: int,
    spec: EnvSpec,
    num_steps: int = 1,
    marked: bool = False,
    with_bags: bool = False,
) -> int:
    """Bytes that a replay takes when it is full; marked: rows say where episodes end."""
    link = np.dtype(np.int64).itemsize
    if with_bags:
        return capacity * (record(spec, BAG_MARKS).itemsize + link + ROW_BYTES)
    if num_steps == 1:
        return capacity * record(spec, MARKS if marked else ()).itemsize
    return capacity * (record(spec, MARKS).itemsize + link)


def check_memory(
    capacity: int,
    spec: EnvSpec,
    num_steps: int = 1,
    marked: bool = False,
    with_bags: bool = False,
) -> str:
    """One line about the memory that the replay will take; UserError if it will not fit."""
    needed = memory_needed(capacity, spec, num_steps, marked, with_bags)
    check_fits(capacity, needed, available_memory())
    return f"replay: {capacity:,} transitions, up to {needed / 1e6:,.0f} MB"


def check_fits(capacity: int, needed: int, free: int | None, where: str = "") -> None:
    """UserError if a replay of so many bytes does not fit into those that are free."""
    if free is not None and needed > free:
        fits = int(0.8 * free) // (needed // capacity)
        raise UserError(
            f"a replay of {capacity:,} transitions takes {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free{where}: --buffer-size {fits} would fit"
        )
