"""Environments with goals: what Gymnasium-Robotics calls a GoalEnv.

    observation   a Dict with "achieved_goal", "desired_goal" and whatever else
    functions     compute_reward and, if it has one, compute_terminated (achieved, desired, info)

Each says what `step` returns for these goals, so that steps can be judged by another goal than the
one they were played for. They are asked for whole minibatches. An environment whose function looks
at one pair of goals only is asked row by row, which is said once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from p3s.envs.adapter import Adapter, describe
from p3s.envs.flattening import holds_pixels, is_image_part, parts_of
from p3s.errors import TrainingStopped, UserError, in_words, note
from p3s.types import FLOAT_BYTES

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
ROWS_TRIED = 8
"""Rows that are judged one by one too, to see whether a function takes batches."""


class Goals:
    """The goals in an environment's flat observations, and who judges by them."""

    def __init__(self, env: Adapter) -> None:
        space = env.env.observation_space
        problem = goal_problem(env)
        if problem is not None:
            raise UserError(problem, "hindsight")
        assert isinstance(space, spaces.Dict)
        self._name, self._goal = describe(env), space[DESIRED]
        self._packed, places, start = bool(env.env_spec.observation.images), {}, 0
        size = FLOAT_BYTES if self._packed else 1
        for name, part in parts_of(space):
            if self._packed and is_image_part(part):
                continue
            places[name] = slice(start, start := start + size * spaces.flatdim(part))
        self.achieved, self.desired = places[ACHIEVED], places[DESIRED]
        """Where they are in an observation: in its numbers, or in their bytes if it is packed."""
        self._reward = _Judge("compute_reward", env.env, self._name)
        terminated = _function(env.env, "compute_terminated")
        self._terminated = terminated and _Judge("compute_terminated", env.env, self._name)

    def judge(
        self, achieved: np.ndarray, desired: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Rewards, and whether episodes terminate there: None if the environment does not say.

        achieved, desired: (rows, size), as they are in observations.
        """
        if self._packed:
            achieved, desired = achieved.view(np.float32), desired.view(np.float32)
        own = (np.asarray(goals, self._goal.dtype) for goals in (achieved, desired))
        pairs = tuple(goals.reshape(-1, *(self._goal.shape or ())) for goals in own)
        rewards = self._reward(*pairs).astype(np.float32)
        if not np.isfinite(rewards).all():
            bad = rewards[~np.isfinite(rewards)][0]
            raise TrainingStopped(f"compute_reward of {self._name} gave {bad}")
        return rewards, None if self._terminated is None else self._terminated(*pairs).astype(bool)


class _Judge:
    """One of the environment's functions, asked for all rows at once where it can be."""

    def __init__(self, name: str, env: gymnasium.Env, env_name: str) -> None:
        self._name, self._env_name = name, env_name
        self._function: Callable[..., Any] = _function(env, name)
        self._takes_batches: bool | None = None

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        if self._takes_batches is None and len(achieved) > 1:
            self._takes_batches = self._agrees(achieved, desired)
            if not self._takes_batches:
                note(
                    f"{self._name} of {self._env_name} takes one pair of goals at a time: "
                    "it is called row by row, which is slow"
                )
        if self._takes_batches:
            return self._batch(achieved, desired)
        return self._one_by_one(achieved, desired)

    def _agrees(self, achieved: np.ndarray, desired: np.ndarray) -> bool:
        """Whether a whole batch is judged as its rows are."""
        try:
            together = self._batch(achieved, desired)
        except Exception:
            return False  # an error of its own is raised row by row as well
        if together.shape != achieved.shape[:1]:
            return False
        few = slice(0, ROWS_TRIED)
        return bool(np.array_equal(together[few], self._one_by_one(achieved[few], desired[few])))

    def _batch(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.asarray(self._function(achieved, desired, [{}] * len(achieved)))

    def _one_by_one(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        try:
            found = [self._function(*pair, {}) for pair in zip(achieved, desired, strict=True)]
            return np.array([np.asarray(one).item() for one in found])
        except Exception as error:
            what = f"{self._name} of {self._env_name} raised {in_words(error)}"
            raise TrainingStopped(what) from error


def goal_problem(env: Adapter) -> str | None:
    """Why an environment's goals cannot be replaced in hindsight, or None."""
    space, name = env.env.observation_space, describe(env)
    if not isinstance(space, spaces.Dict) or not {ACHIEVED, DESIRED} <= set(space.spaces):
        return (
            f"{name} has no goals: hindsight is for observations that are a Dict with "
            f"{ACHIEVED} and {DESIRED}"
        )
    goals = space[ACHIEVED], space[DESIRED]
    if any(not isinstance(goal, spaces.Box) for goal in goals) or goals[0].shape != goals[1].shape:
        return f"{name}: {ACHIEVED} is {goals[0]}, {DESIRED} {goals[1]}; both must be a Box alike"
    if any(holds_pixels(goal) or is_image_part(goal) for goal in goals):
        return f"{name}: its goals are pixels, and hindsight replaces numbers only"
    if _function(env.env, "compute_reward") is None:
        return f"{name} has no function compute_reward(achieved_goal, desired_goal, info)"
    return None


def _function(env: gymnasium.Env, name: str) -> Any:
    """A function of the environment or of one of its wrappers; None without one."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
