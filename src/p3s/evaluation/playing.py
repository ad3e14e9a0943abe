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
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from p3s import keys
from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import TrainingStopped, environment_error
from p3s.experience.normalization import Scaling, normalize
from p3s.learning.devices import compiler_options, library_for
from p3s.types import Params

EPISODES_TOGETHER = 10
LONGEST_EPISODE = 100_000
"""Steps after which an evaluation is given up."""


Stream = Literal["evaluation", "fresh_evaluation"]
"""The episodes that policies are chosen by, and those that the chosen one is judged by."""


class Unit(NamedTuple):
    """A few episodes of one policy; all that decides their returns, beside the run's seed."""

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
        observations = np.stack([self._reset(unit, index) for index in range(unit.episodes)])
        policy = jax.device_put(unit.policy, jax.local_devices()[0])
        name = (self._seed, f"{unit.stream}_noise", unit.step, unit.first_episode)
        noise, act = keys.key(*name), _acting(self._algorithm, unit.explore)
        returns, playing, time = np.zeros(unit.episodes), list(range(unit.episodes)), 0
        while playing:
            if time == LONGEST_EPISODE:
                raise TrainingStopped(
                    f"an episode of an evaluation has not ended after {LONGEST_EPISODE:,} steps: "
                    "give the environment a time limit (--env-kwargs max_episode_steps 1000)"
                )
            time += 1
            key = jax.random.fold_in(noise, time) if unit.explore else noise
            seen = normalize(observations, unit.scaling)
            actions = np.asarray(act(policy, seen, key))
            if not np.isfinite(actions).all():
                raise TrainingStopped(
                    f"the policy of learner {unit.learner} produced non-finite actions"
                )
            still = []
            for index in playing:
                observations[index], reward, terminated, truncated, _ = self._step(
                    unit, index, actions[index]
                )
                returns[index] += reward
                if not (terminated or truncated):
                    still.append(index)
            playing = still
        if not np.isfinite(returns).all():
            raise TrainingStopped(f"an evaluation at step {unit.step} gave a non-finite return")
        return returns

    def _reset(self, unit: Unit, index: int) -> np.ndarray:
        episode = unit.first_episode + index
        seed = keys.integer(self._seed, unit.stream, unit.step, episode)
        try:
            return self.envs[index].reset(seed=seed)[0]
        except Exception as error:
            raise environment_error("at a reset for evaluation", unit.learner, error) from error

    def _step(self, unit: Unit, index: int, action: np.ndarray) -> tuple[Any, ...]:
        try:
            return self.envs[index].step(action)
        except Exception as error:
            raise environment_error("at a step of an evaluation", unit.learner, error) from error

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
        self.envs = []
