"""The evaluations of a run: begun when they are due, recorded in the order of their steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from p3s.evaluation.protocol import Evaluator, PendingEvaluation
from p3s.experience.normalization import Scaling
from p3s.learning.counters import Counters
from p3s.policies.policy import Policy
from p3s.types import Params

MOST_UNDER_WAY = 3
"""Evaluations that may be played at a time; each holds the policies of all learners."""


class Begun(NamedTuple):
    """An evaluation under way, and what its row says of the moment it was due."""

    pending: PendingEvaluation
    counts: dict[str, Any]
    seconds: float
    policies: list[Params]
    """None in place of those that live in shards."""
    policy: Callable[[int, Params], Policy]
    """A learner and its parameters as a policy of that moment."""


class EvaluationQueue:
    """Evaluations under way, oldest first."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._begun: deque[Begun] = deque()

    def begin(
        self,
        policies: list[Params],
        extras: tuple[str, ...],
        chief_pick: int | None,
        episodes: int,
        scaling: Scaling | None,
        counters: Counters,
        policy: Callable[[int, Params], Policy],
    ) -> None:
        """Begin to evaluate these policies, see `Evaluator.begin`; None for those in shards."""
        step = counters.total_steps
        pending = self.evaluator.begin(policies, extras, chief_pick, episodes, step, scaling)
        counts = {"step": step, "updates": counters.total_updates}
        self._begun.append(Begun(pending, counts, round(counters.seconds, 3), policies, policy))

    @property
    def under_way(self) -> bool:
        """Whether an evaluation has begun and was not taken yet."""
        return bool(self._begun)

    def finished(
        self, wait: bool, champion: Callable[[int], Params]
    ) -> Iterator[tuple[dict[str, Any], Policy]]:
        """Rows with their champions, as far as they are done; all of them if we wait.

        champion: fetches the parameters of a learner in a shard, which has just played.
        Where there are more than MOST_UNDER_WAY, the oldest are waited for.
        """
        while self._begun and (wait or self._too_many or self._begun[0].pending.done()):
            pending, counts, seconds, policies, policy = self._begun[0]
            row: dict[str, Any] = {**counts, **pending.row(), "seconds": seconds}
            self._begun.popleft()
            best = row["champion"]
            params = champion(best) if policies[best] is None else policies[best]
            yield row, policy(best, params)

    @property
    def _too_many(self) -> bool:
        return len(self._begun) > MOST_UNDER_WAY

    def close(self) -> None:
        """Close environments and end workers."""
        self._begun.clear()
        self.evaluator.close()
