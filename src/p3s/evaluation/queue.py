"""The evaluations of a run: begun when they are due, recorded in the order of their steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from p3s.evaluation.protocol import Evaluator, PendingEvaluation
from p3s.policy import Policy, policy_of

if TYPE_CHECKING:
    from p3s.train import Training


MOST_UNDER_WAY = 3
"""Evaluations that may be played at a time; each holds the policies of all learners."""


class Begun(NamedTuple):
    """An evaluation under way, and what its row says of the moment it was due."""

    pending: PendingEvaluation
    counts: dict[str, Any]
    seconds: float
    champion: Policy | None


class EvaluationQueue:
    """Evaluations under way, oldest first."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._begun: deque[Begun] = deque()

    def begin(self, training: Training) -> None:
        """Begin to evaluate the population as it is now."""
        scheme, counters = training.scheme, training.counters
        picked = scheme.best(training.returns.values)
        champion = None if picked is None else policy_of(training)
        pending = self.evaluator.begin(
            training.champions(),
            scheme.extra_champions,
            picked,
            training.options.evaluation_episodes,
            counters.total_steps,
            training.scaling,
        )
        counts = {"step": counters.total_steps, "updates": counters.total_updates}
        self._begun.append(Begun(pending, counts, round(counters.seconds, 3), champion))

    @property
    def under_way(self) -> bool:
        """Whether an evaluation has begun and was not taken yet."""
        return bool(self._begun)

    def finished(self, wait: bool) -> Iterator[tuple[dict[str, Any], Policy | None]]:
        """Rows with their champions, as far as they are done; all of them if we wait.

        Where there are more than MOST_UNDER_WAY, the oldest are waited for.
        """
        while self._begun and (wait or self._too_many or self._begun[0].pending.done()):
            pending, counts, seconds, champion = self._begun[0]
            row = {**counts, **pending.row(), "seconds": seconds}
            self._begun.popleft()
            yield row, champion

    @property
    def _too_many(self) -> bool:
        return len(self._begun) > MOST_UNDER_WAY

    def close(self) -> None:
        """Close environments and end workers."""
        self._begun.clear()
        self.evaluator.close()
