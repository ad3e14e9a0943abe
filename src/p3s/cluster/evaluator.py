"""Evaluations of a run over shards: each plays the episodes of its own learners."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.evaluation.playing import Unit
from p3s.evaluation.protocol import Evaluator, done

if TYPE_CHECKING:
    from p3s.cluster.shards import Shards


class ShardEvaluator(Evaluator):
    """Lets every shard play the episodes of its own learners."""

    def __init__(
        self, shards: Shards, make: Callable[[], Adapter], algorithm: Algorithm, seed: int
    ) -> None:
        super().__init__(make, algorithm, seed)
        self._shards = shards

    def submit(self, units: list[Unit]) -> list[Future[np.ndarray]]:
        owners = [self._shards.owner(unit.learner) for unit in units]
        shards = range(len(self._shards.parts))
        orders = [[i for i, owner in enumerate(owners) if owner == shard] for shard in shards]
        own_units = [[units[i] for i in order] for order in orders]
        answers = self._shards.places.ask_all("evaluate", own_units)
        returns = {
            i: played
            for order, answer in zip(orders, answers, strict=True)
            for i, played in zip(order, answer, strict=True)
        }
        return [done(returns[i]) for i in range(len(units))]
