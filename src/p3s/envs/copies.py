"""Groups of environment copies: actions in, transitions and finished episodes out.

Each copy belongs to one learner. Episode k of copy i starts from its own seed, so where it starts
does not depend on anything that happened before. A transition never crosses a reset: it holds the
true final observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from p3s import keys
from p3s.envs import Adapter
from p3s.envs.state import capture, restore, uncaptured
from p3s.errors import TrainingStopped, environment_error, note
from p3s.types import EnvSpec, Episode, Transition

LARGEST = float(np.finfo(np.float32).max)
"""What learners can be told; a larger reward would be infinite to them."""
PER_COPY = ("observations", "totals", "lengths", "num_episodes")
"""Arrays of a snapshot with an entry for each copy."""
LEAF = "leaf_"
"""Begins the names of more of them: the states of copies on a device, an array for each part."""


def state_name(index: int) -> str:
    """The name of a copy's captured state in a snapshot."""
    return f"state_{index}"


def join_snapshots(snapshots: list[dict[str, Any]]) -> dict[str, Any]:
    """The snapshot of a group, from those of its parts in the order of the copies."""
    if not snapshots[0]:
        return {}
    arrays = *PER_COPY, *(name for name in snapshots[0] if name.startswith(LEAF))
    joined = {name: np.concatenate([part[name] for part in snapshots]) for name in arrays}
    first = 0
    for part in snapshots:
        count = len(part["totals"])
        states = {index: part.get(state_name(index)) for index in range(count)}
        joined |= {state_name(first + i): s for i, s in states.items() if s is not None}
        first += count
    return joined


def split_snapshot(values: dict[str, Any], parts: list[range]) -> list[dict[str, Any]]:
    """The inverse: for each part the snapshot of its copies."""
    if not values:
        return [{} for _ in parts]
    split = []
    arrays = *PER_COPY, *(name for name in values if name.startswith(LEAF))
    for part in parts:
        own = {name: values[name][part.start : part.stop] for name in arrays}
        states = {index: values.get(state_name(copy)) for index, copy in enumerate(part)}
        split.append(own | {state_name(i): s for i, s in states.items() if s is not None})
    return split


def check_finite(what: str, values: np.ndarray, whose: Sequence[int]) -> None:
    """Stop if one of the stacked values is not finite as a float32, and say whose."""
    finite = np.abs(values) <= LARGEST
    if not finite.all():
        index = int(np.argwhere(~finite)[0][0])
        raise TrainingStopped(f"the {what.format(whose[index])} is {values[index]}")


class Steps(NamedTuple):
    """What one step of the active copies gave, in the order of the copies."""

    transitions: Transition
    """(active, ...)."""
    episodes: list[Episode]
    """Those that ended with this step."""


class Environments(Protocol):
    """A group of copies, in this process or elsewhere."""

    spec: EnvSpec
    exact_resume: bool
    """Whether a snapshot holds the episodes in progress."""
    continued: bool
    """Whether the last resume went on with every episode."""
    lost: list[int]
    """Copies that lost their episode; the reader clears the list."""

    @property
    def observations(self) -> np.ndarray:
        """What the copies show now, (copies, *shape)."""
        ...

    def start(self) -> None:
        """Begin the first episode in every copy."""
        ...

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """One step in the active copies; a copy whose episode ends begins the next one."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        ...

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot; a copy without a state in it begins a new episode."""
        ...

    def close(self) -> None:
        """Close every copy."""
        ...


class LocalCopies:
    """Copies in this process, stepped one after another.

    first: the learner of the first copy, where the group is a part of a larger one.
    example: a copy that was made already, to be the first.
    """

    def __init__(
        self,
        make: Callable[[], Adapter],
        num_copies: int,
        seed: int,
        first: int = 0,
        example: Adapter | None = None,
    ) -> None:
        self._make, self._seed, self._first = make, seed, first
        self.envs = [example or make(), *(make() for _ in range(num_copies - 1))]
        self.spec: EnvSpec = self.envs[0].env_spec
        shape, dtype = self.spec.observation.shape, self.spec.observation.dtype
        self.observations = np.zeros((num_copies, *shape), dtype)
        self.totals = np.zeros(num_copies, np.float64)
        self.lengths = np.zeros(num_copies, np.int64)
        self.num_episodes = np.zeros(num_copies, np.int64)
        self._left_out = uncaptured(make, keys.integer(seed, "probe"))
        self.exact_resume, self.continued = self._left_out is not None, True
        self.lost: list[int] = []
        self._said = False

    def start(self) -> None:
        for index in range(len(self.envs)):
            self._reset(index)

    def _reset(self, index: int) -> None:
        learner, episode = self._first + index, int(self.num_episodes[index])
        seed = keys.integer(self._seed, "episode", learner, episode)
        try:
            observation, _ = self.envs[index].reset(seed=seed)
        except Exception as error:
            raise environment_error("at a reset", learner, error) from error
        self.observations[index] = observation
        self._check_finite("observation of learner {}'s environment", self.observations)
        self.totals[index], self.lengths[index] = 0.0, 0
        self.num_episodes[index] += 1

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        self._check_finite("action of learner {}", actions)
        count = len(self.envs)
        rewards, discounts = np.zeros(count, np.float64), np.ones(count, np.float32)
        next_observations = self.observations.copy()
        ended = []
        for index in active.tolist():
            try:
                observation, reward, terminated, truncated, _ = self.envs[index].step(
                    actions[index]
                )
            except Exception as error:
                raise environment_error("at a step", self._first + index, error) from error
            next_observations[index], rewards[index] = observation, reward
            discounts[index] = not terminated
            if terminated or truncated:
                ended.append(index)
        self._check_finite("observation of learner {}'s environment", next_observations)
        self._check_finite("reward of learner {}'s environment", rewards)
        steps = Transition(self.observations, actions, rewards, discounts, next_observations)
        if len(active) < count:
            steps = Transition(*(part[active] for part in steps))
        # `observations` may be written to by the resets below, `next_observations` must not be.
        self.observations = next_observations.copy() if ended else next_observations
        self.totals += rewards
        self.lengths[active] += 1
        episodes = [
            Episode(self._first + i, float(self.totals[i]), int(self.lengths[i])) for i in ended
        ]
        for index in ended:
            self._reset(index)
        return Steps(steps, episodes)

    def snapshot(self) -> dict[str, Any]:
        if not self.num_episodes.any():
            return {}
        values: dict[str, Any] = {name: getattr(self, name) for name in PER_COPY}
        for index in range(len(self.envs)):
            state = self._capture(index)
            if state is not None:
                values[state_name(index)] = np.frombuffer(state, np.uint8)
        return values

    def _capture(self, index: int) -> bytes | None:
        """A copy's state; None if it cannot be captured, which is said once."""
        if self._left_out is None:
            return None
        try:
            return capture(self.envs[index], self._left_out)
        except Exception as error:
            if not self._said:
                self._said = True
                whose = f"learner {self._first + index}'s environment"
                note(
                    f"the state of {whose} can no longer be captured "
                    f"({type(error).__name__}: {error}): a resume begins a new episode"
                )
            return None

    def resume(self, values: dict[str, Any]) -> None:
        if not values:
            return
        for name in PER_COPY:
            setattr(self, name, values[name].copy())
        self.continued = True
        for index in range(len(self.envs)):
            if not self._restore(index, values.get(state_name(index))):
                self.continued = False
                self._reset(index)

    def _restore(self, index: int, state: np.ndarray | None) -> bool:
        """Whether a copy is in its captured state again."""
        whose = f"the environment of learner {self._first + index}"
        if state is None:
            # Where no state can be captured at all, the start of the run says so.
            if self._left_out is not None:
                note(f"{whose} begins a new episode: the checkpoint does not hold its state")
            return False
        try:
            self.envs[index].reset(seed=0)
            restore(self.envs[index], state.tobytes())
        except Exception as error:
            reason = f"its state cannot be restored ({type(error).__name__}: {error})"
            note(f"{whose} begins a new episode: {reason}")
            self.envs[index].close()
            self.envs[index] = self._make()  # the old one may be half restored
            return False
        return True

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _check_finite(self, what: str, values: np.ndarray) -> None:
        check_finite(what, values, range(self._first, self._first + len(self.envs)))
