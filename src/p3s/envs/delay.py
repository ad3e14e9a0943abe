"""Delayed rewards (Section 4.2): rewards are saved up and paid every f-th step or at the end.

    pay when the episode ends (terminated or truncated), or every `delay` steps since the reset

The return of an episode is unchanged; only the moments of payment are.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from p3s.errors import UserError

Delay = int | Literal["end"]


def checked_delay(delay: Any) -> Delay:
    """A delay from a user: a whole number of at least 1, or "end"."""
    if delay == "end":
        return "end"
    if isinstance(delay, Integral) and not isinstance(delay, bool) and int(delay) >= 1:
        return int(delay)
    raise UserError(f"delay must be a whole number of at least 1 or 'end', not {delay!r}", "delay")


class DelayedReward(gymnasium.Wrapper, RecordConstructorArgs):
    """Pay the accumulated reward every `delay` steps, or only at the end of the episode."""

    def __init__(self, env: gymnasium.Env, delay: Delay) -> None:
        RecordConstructorArgs.__init__(self, delay=delay)
        gymnasium.Wrapper.__init__(self, env)
        self.delay = checked_delay(delay)
        self._saved = 0.0
        self._steps = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._saved, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._saved += float(reward)
        self._steps += 1
        due = isinstance(self.delay, int) and self._steps % self.delay == 0
        if not (due or terminated or truncated):
            return observation, 0.0, terminated, truncated, info
        paid, self._saved = self._saved, 0.0
        return observation, paid, terminated, truncated, info
