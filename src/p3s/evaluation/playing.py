"""Play whole episodes with one policy.

A unit of play is a few episodes of one policy, stepped together: one batched policy call per step.
An evaluation is cut into the same units whoever plays them, in whatever order, so its returns are
the same to the bit in this process and in any number of workers. Where episode k of an evaluation
starts follows from the run's seed, the step and k alone: every learner of every method, however
many there are, is judged from the same start states. Few episodes at a time also stay in the
processor's cache, where fifty simulations in turn do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from p3s import keys
from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.envs.episodes import Endless, Raised, play_episodes
from p3s.errors import TrainingStopped, environment_error
from p3s.experience.normalization import Scaling, normalize
from p3s.learning.devices import compiler_options, library_for
from p3s.types import Params

EPISODES_TOGETHER = 10

Stream = Literal["evaluation", "fresh_evaluation"]
"""The episodes that policies are chosen by, and those that the chosen one is judged by."""


class Unit(NamedTuple):
    """A few episodes of one policy; all that decides their returns, besides the run's seed."""

    policy: Params
    """On the host."""
    learner: int
    """Whose policy it is, for messages."""
    stream: Stream
    """Where episodes start, and what noise they have: the same for every policy on this stream."""
    first_episode: int
    episodes: int
    step: int
    """When the evaluation is due; episodes of another step start elsewhere."""
    scaling: Scaling | None
    """What observations are normalized by."""
    explore: bool
    """Play with the policy's own noise."""


def cut_into_units(
    policies: list[Params],
    learners: list[int],
    stream: Stream,
    episodes: int,
    step: int,
    scaling: Scaling | None,
    explore: bool,
) -> list[Unit]:
    """The units of an evaluation, in the order of policies and episodes."""
    return [
        Unit(
            policy, learner, stream, first, min(EPISODES_TOGETHER, episodes - first), step,
            scaling, explore,
        )
        for policy, learner in zip(policies, learners, strict=True)
        for first in range(0, episodes, EPISODES_TOGETHER)
    ]  # fmt: skip


@lru_cache(maxsize=8)
def _acting(algorithm: Algorithm, explore: bool) -> Any:
    options = compiler_options(library_for(algorithm))
    return jax.jit(partial(algorithm.act, explore=explore), compiler_options=options)


class Player:
    """Environments for evaluation, made once and used at every evaluation."""

    def __init__(self, make: Callable[[], Adapter], algorithm: Algorithm, seed: int) -> None:
        self._make, self._algorithm, self._seed = make, algorithm, seed
        self.envs: list[Adapter] = []

    def play(self, unit: Unit) -> np.ndarray:
        """The returns of the unit's episodes, (episodes,)."""
        while len(self.envs) < unit.episodes:
            self.envs.append(self._make())
        episodes = range(unit.first_episode, unit.first_episode + unit.episodes)
        seeds = [keys.integer(self._seed, unit.stream, unit.step, number) for number in episodes]
        envs = self.envs[: unit.episodes]
        try:
            returns, _ = play_episodes(envs, seeds, self._actor(unit))
        except Endless as error:
            raise TrainingStopped(str(error)) from error
        except Raised as error:
            when = f"{error.when} of an evaluation"
            raise environment_error(when, unit.learner, error.error) from error.error
        if not np.isfinite(returns).all():
            raise TrainingStopped(f"an evaluation at step {unit.step} gave a non-finite return")
        return returns

    def _actor(self, unit: Unit) -> Callable[[list[np.ndarray], Any], np.ndarray]:
        """What gives the actions of the unit's policy."""
        policy = jax.device_put(unit.policy, jax.local_devices()[0])
        name = (self._seed, f"{unit.stream}_noise", unit.step, unit.first_episode)
        noise, act, times = keys.key(*name), _acting(self._algorithm, unit.explore), count(1)

        def actions(observations: list[np.ndarray], infos: Any) -> np.ndarray:
            key = jax.random.fold_in(noise, next(times)) if unit.explore else noise
            chosen = np.asarray(act(policy, normalize(np.stack(observations), unit.scaling), key))
            if not np.isfinite(chosen).all():
                learner = unit.learner
                raise TrainingStopped(
                    f"the policy of learner {learner} produced non-finite actions"
                )
            return chosen

        return actions

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
        self.envs = []
