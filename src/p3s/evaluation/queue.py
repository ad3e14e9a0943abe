"""The evaluations of a run: begun when they are due, recorded in the order of their steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from p3s.evaluation.protocol import Evaluator, PendingEvaluation
from p3s.policy import Policy, policy_maker
from p3s.types import Params

if TYPE_CHECKING:
    from p3s.train import Training


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

    def begin(self, training: Training) -> None:
        """Begin to evaluate the population as it is now."""
        scheme, counters = training.scheme, training.counters
        policies = training.champions()
        pending = self.evaluator.begin(
            policies,
            scheme.extra_champions,
            scheme.best(training.returns.values),
            training.options.evaluation_episodes,
            counters.total_steps,
            training.scaling,
        )
        counts = {"step": counters.total_steps, "updates": counters.total_updates}
        seconds, policy = round(counters.seconds, 3), policy_maker(training)
        self._begun.append(Begun(pending, counts, seconds, policies, policy))

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
