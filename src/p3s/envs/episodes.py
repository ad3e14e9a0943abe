"""Whole episodes without learning: evaluations, films and references are all played here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from p3s.errors import UserError, in_words

LONGEST_EPISODE = 100_000
"""Steps after which an episode is given up."""


class Raised(UserError):
    """An environment raised."""

    def __init__(self, when: str, error: Exception) -> None:
        super().__init__(f"the environment raised {when}: {in_words(error)}")
        self.when, self.error = when, error


class Endless(UserError):
    """An episode that does not end."""

    def __init__(self) -> None:
        super().__init__(
            f"an episode has not ended after {LONGEST_EPISODE:,} steps: "
            "give the environment a time limit (--env-kwargs max_episode_steps 1000)"
        )


def play_episodes(
    envs: Sequence[Any],
    seeds: Sequence[int],
    act: Callable[[list[Any], list[dict[str, Any]]], Any],
    watch: Callable[[Any], Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of one episode in each environment, stepped together.

    act: an action for every environment, from their observations and infos; those of episodes
    that are over count no more. watch: called with an environment after each of its steps.
    """
    starts = [_call("at a reset", env.reset, seed=s) for env, s in zip(envs, seeds, strict=True)]
    observations, infos = [seen for seen, _ in starts], [info for _, info in starts]
    returns, lengths = np.zeros(len(envs)), np.zeros(len(envs), np.int64)
    playing = list(range(len(envs)))
    while playing:
        if lengths.max() == LONGEST_EPISODE:
            raise Endless
        actions, still = act(observations, infos), []
        for index in playing:
            step = _call("at a step", envs[index].step, actions[index])
            observations[index], reward, terminated, truncated, infos[index] = step
            returns[index] += reward
            lengths[index] += 1
            if watch is not None:
                _call("when it was drawn", watch, envs[index])
            if not (terminated or truncated):
                still.append(index)
        playing = still
    return returns, lengths


def _call(when: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except Exception as error:
        raise Raised(when, error) from error
