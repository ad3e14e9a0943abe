"""Small environments whose values are known exactly, to find out which part of a learner is wrong.

    constant        one step, reward 1: can the values learn a number at all?
    observation     one step, reward = the observation (-1 or 1): do they look at it?
    discounting     two steps, observations 0 then 1, reward 1 at the end: Q = gamma, then 1
    action          one step, reward 1 - (a - ½)², or 1 for action 1: do they look at the action,
                    and does the policy find it?
    goal            two steps, reward by the last action: does a value carry the better policy?

Each comes with both kinds of actions; all have one observation of size 1, so that one compiled
program learns all probes of a kind.

`Catch` is a small task with images: is the ball seen, and the paddle moved under it?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

BEST_ACTION = 0.5
"""The best continuous action of the probes that reward actions."""


def action_reward(action: Any, discrete: bool) -> float:
    """1 at the best action, less elsewhere."""
    if discrete:
        return float(int(action) == 1)
    return 1.0 - (float(np.asarray(action).reshape(-1)[0]) - BEST_ACTION) ** 2


@dataclass(frozen=True)
class Probe:
    """What a probe pays and what its values are.

    reward: (observation, action reward, is last step) -> reward
    value: (observation, action reward, gamma) -> Q of the best policy
    """

    reward: Callable[[float, float, bool], float]
    value: Callable[[float, float, float], float]
    length: int = 1
    observations: tuple[float, ...] = (0.0,)
    """Where an episode starts, one of these at random; later steps see their number."""


PROBES: dict[str, Probe] = {
    "constant": Probe(lambda seen, paid, last: 1.0, lambda seen, paid, gamma: 1.0),
    "observation": Probe(
        lambda seen, paid, last: seen,
        lambda seen, paid, gamma: seen,
        observations=(-1.0, 1.0),
    ),
    "discounting": Probe(
        lambda seen, paid, last: float(last),
        lambda seen, paid, gamma: 1.0 if seen == 1.0 else gamma,
        length=2,
    ),
    "action": Probe(lambda seen, paid, last: paid, lambda seen, paid, gamma: paid),
    "goal": Probe(
        lambda seen, paid, last: paid if last else 0.0,
        lambda seen, paid, gamma: paid if seen == 1.0 else gamma,
        length=2,
    ),
}


class ProbeEnv(gymnasium.Env):
    """One of `PROBES`, with continuous or discrete actions."""

    def __init__(self, name: str, discrete: bool) -> None:
        self.probe, self.discrete = PROBES[name], discrete
        self.observation_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.action_space = (
            spaces.Discrete(2) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)
        )
        self._seen, self._step = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen, self._step = float(self.np_random.choice(self.probe.observations)), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        last = self._step == self.probe.length
        reward = self.probe.reward(self._seen, action_reward(action, self.discrete), last)
        self._seen = float(self._step)
        return self._observation(), reward, last, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._seen], np.float32)

    def true_values(
        self, observations: np.ndarray, actions: np.ndarray, discount: float
    ) -> np.ndarray:
        """Q of the best policy, for observations (batch, 1) and actions of this environment."""
        return np.array(
            [
                self.probe.value(float(seen[0]), action_reward(action, self.discrete), discount)
                for seen, action in zip(observations, actions, strict=True)
            ]
        )


class Catch(gymnasium.Env):
    """A ball falls; the paddle at the bottom has to be under it: reward 1 at the end, or -1.

    Observations are 40×40×1 pixels. An episode has 9 steps, enough to reach every ball.
    Discrete actions are left, stay, right; a continuous one is the paddle's speed in [-1, 1].
    """

    SIZE = 40
    BALL = 4
    """Width of the ball, and how far ball and paddle move in one step."""
    PADDLE = 8

    def __init__(self, discrete: bool = True) -> None:
        self.discrete = discrete
        self.observation_space = spaces.Box(0, 255, (self.SIZE, self.SIZE, 1), np.uint8)
        self.action_space = (
            spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)
        )
        self._ball, self._height, self._paddle = 0, 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._ball = self.BALL * int(self.np_random.integers(self.SIZE // self.BALL))
        self._height, self._paddle = 0, (self.SIZE - self.PADDLE) / 2
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        speed = int(action) - 1 if self.discrete else float(np.asarray(action).reshape(-1)[0])
        moved = self._paddle + self.BALL * speed
        self._paddle = float(np.clip(moved, 0, self.SIZE - self.PADDLE))
        self._height += self.BALL
        last = self._height == self.SIZE - self.BALL
        center = self._ball + self.BALL / 2
        caught = self._paddle <= center <= self._paddle + self.PADDLE
        reward = (1.0 if caught else -1.0) if last else 0.0
        return self._observation(), reward, last, False, {}

    def _observation(self) -> np.ndarray:
        image = np.zeros((self.SIZE, self.SIZE, 1), np.uint8)
        left = round(self._paddle)
        image[-self.BALL :, left : left + self.PADDLE] = 128
        image[self._height : self._height + self.BALL, self._ball : self._ball + self.BALL] = 255
        return image
