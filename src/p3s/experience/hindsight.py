"""Hindsight replay: steps learn from goals that were reached later (Andrychowicz et al. 2017).

    minibatches   steps of complete episodes (bags.py), drawn uniformly with replacement
    k of k + 1    of them get a new goal, which a step of the same episode achieved:
                      future    this one or a later one, uniformly
                      final     the last one
                      episode   any, uniformly
    with it       rewards and terminations are those of the environment's own functions

Nothing is stored for it: rows are changed as they are drawn. A time limit bootstraps as ever.

Differs from Stable-Baselines3 in: terminations are judged anew where the environment can; from the
original in: the share is exact in every minibatch, and all rewards but those of new goals are the
ones that were paid.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from p3s.envs.goals import Goals
from p3s.experience.bags import BAG_MARKS, Bags
from p3s.experience.rows import fields, without_marks
from p3s.types import EnvSpec

NewGoal = Literal["future", "final", "episode"]


class Hindsight(Bags):
    """The complete episodes of a replay's ring, with goals that are replaced.

    share: the part of a minibatch with new goals.
    """

    needed_by: ClassVar[str] = "hindsight"

    def __init__(
        self, capacity: int, lag: int, spec: EnvSpec, goals: Goals, new_goal: NewGoal, share: float
    ) -> None:
        super().__init__(capacity, None, lag)
        self._spec, self._goals = spec, goals
        self._new_goal: NewGoal = new_goal
        self._share = share

    def take(
        self, rng: np.random.Generator, shape: tuple[int, int], own: slice, rows: np.ndarray
    ) -> np.ndarray:
        """Minibatches, (learners, batch, columns), of the learners in `own`; rows: the ring."""
        count = round(self._share * shape[1])
        slots = self._draw_slots(rng, shape)
        sources = self._goal_slots(slots[:, :count], rng.random((shape[0], count)))[own]
        taken = without_marks(rows[self._places[slots[own]]], self._spec)
        view, ring = fields(taken, self._spec), fields(rows, self._spec, BAG_MARKS)
        changed, goals = view[:, :count], self._goals
        desired = ring["next_observation"][self._places[sources]][..., goals.achieved]
        achieved = changed["next_observation"][..., goals.achieved].copy()
        for name in ("observation", "next_observation"):
            changed[name][..., goals.desired] = desired
        size = desired.shape[-1]
        rewards, terminated = goals.judge(achieved.reshape(-1, size), desired.reshape(-1, size))
        changed["reward"] = rewards.reshape(changed.shape)
        if terminated is not None:
            changed["discount"] = 1 - terminated.reshape(changed.shape)
        return taken

    def _goal_slots(self, slots: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Where the steps are whose achieved goals become the new ones."""
        indices, lengths = self._indices[slots], self._lengths[slots]
        first = {"future": indices, "final": lengths - 1, "episode": 0}[self._new_goal]
        step = first + np.floor(chances * (lengths - first)).astype(np.int64)
        return (slots - indices + step) % self._capacity
