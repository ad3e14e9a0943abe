"""Noiseless returns under the paper's protocol (Section 4.1).

    every R_eval total steps, each learner plays 10 noiseless episodes;
    the score is the maximum over learners of their mean returns

On-policy algorithms are judged by their stochastic policies, as in the paper; the noiseless
returns are recorded too.

A maximum over N is biased upwards, so every return is kept, and the learner that the chief would
pick plays again on fresh episodes. All episodes of all learners run together: one batched policy
call per step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s import keys
from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.errors import TrainingStopped, environment_error
from p3s.experience.normalization import Scaling, normalize
from p3s.types import Params

LONGEST_EPISODE = 100_000
"""Steps after which an evaluation is given up."""


@partial(jax.jit, static_argnums=0, static_argnames="explore")
def _act(
    algorithm: Algorithm,
    policies: Params,
    observations: jax.Array,
    key: jax.Array,
    explore: bool,
) -> jax.Array:
    """Actions of each group's policy: observations (group, episode, ...)."""
    group_keys = keys.per_learner(key, len(observations))
    return jax.vmap(partial(algorithm.act, explore=explore))(policies, observations, group_keys)


class Evaluator:
    """Environments for evaluation, made once and used at every evaluation."""

    def __init__(self, make: Callable[[], Adapter], algorithm: Algorithm, seed: int) -> None:
        self._make, self._seed = make, seed
        self._envs: list[Adapter] = []
        self._stochastic = algorithm.on_policy
        self._act = partial(_act, algorithm)

    def play(
        self,
        policies: Params,
        groups: list[int],
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
        explore: bool = False,
    ) -> np.ndarray:
        """Returns of every stacked policy, (groups, episodes).

        The seed of an episode depends on run seed, step, group and episode only.
        scaling: what observations are normalized by; explore: with the policies' own noise.
        """
        count = len(groups) * episodes
        while len(self._envs) < count:
            self._envs.append(self._make())
        seeds = [
            keys.integer(self._seed, "evaluation", step, group, episode)
            for group in groups
            for episode in range(episodes)
        ]
        returns = np.zeros(count)
        observations = np.stack(
            [
                self._reset(index, seed, groups[index // episodes])
                for index, seed in enumerate(seeds)
            ]
        )
        playing = list(range(count))
        policies = jax.device_put(policies, jax.local_devices()[0])
        time, noise = 0, keys.key(self._seed, "evaluation_noise", step)
        while playing:
            if time == LONGEST_EPISODE:
                raise TrainingStopped(
                    f"an episode of an evaluation has not ended after {LONGEST_EPISODE:,} steps: "
                    "give the environment a time limit (--env-kwargs max_episode_steps 1000)"
                )
            shape = (len(groups), episodes, *observations.shape[1:])
            seen = normalize(observations, scaling).reshape(shape)
            time += 1
            key = jax.random.fold_in(noise, time) if explore else noise
            actions = np.asarray(self._act(policies, seen, key, explore=explore))
            finite = np.isfinite(actions).reshape(len(groups), -1).all(axis=1)
            if not finite.all():
                learner = groups[int(np.argmin(finite))]
                raise TrainingStopped(
                    f"the policy of learner {learner} produced non-finite actions"
                )
            actions = actions.reshape(count, *actions.shape[2:])
            still = []
            for index in playing:
                observation, reward, terminated, truncated, _ = self._step(
                    index, actions[index], groups[index // episodes]
                )
                observations[index] = observation
                returns[index] += reward
                if not (terminated or truncated):
                    still.append(index)
            playing = still
        if not np.isfinite(returns).all():
            raise TrainingStopped(f"an evaluation at step {step} gave a non-finite return")
        return returns.reshape(len(groups), episodes)

    def _reset(self, index: int, seed: int, learner: int) -> np.ndarray:
        try:
            return self._envs[index].reset(seed=seed)[0]
        except Exception as error:
            raise environment_error("at a reset for evaluation", learner, error) from error

    def _step(self, index: int, action: np.ndarray, learner: int) -> tuple[Any, ...]:
        try:
            return self._envs[index].step(action)
        except Exception as error:
            raise environment_error("at a step of an evaluation", learner, error) from error

    def evaluate(
        self,
        champions: Params,
        extras: tuple[str, ...],
        picked: int | None,
        episodes: int,
        step: int,
        scaling: Scaling | None = None,
    ) -> dict[str, Any]:
        """One row of evaluations.jsonl, without counters and times.

        extras: names of the last champions, which do not count for the score.
        """
        count = jax.tree.leaves(champions)[0].shape[0]
        groups, policies = list(range(count)), champions
        if picked is not None:
            # The champion's fresh episodes are one more group, with its own seeds.
            groups.append(count)
            policies = jax.tree.map(
                lambda leaf: jnp.concatenate([leaf, leaf[picked][None]]), champions
            )
        returns = self.play(policies, groups, episodes, step, scaling, self._stochastic)
        learners = count - len(extras)
        means = returns[:learners].mean(axis=1)
        beside: dict[str, Any] = {}
        if self._stochastic:
            noiseless = self.play(champions, groups[:count], episodes, step, scaling)
            beside = {
                "deterministic_returns": noiseless.tolist(),
                "deterministic_score": float(noiseless.mean(axis=1).max()),
            }
        return {
            "learner_returns": returns[:learners].tolist(),
            "score": float(means.max()),
            "mean": float(means.mean()),
            "champion": picked,
            "champion_return": None if picked is None else float(returns[-1].mean()),
            **{
                f"{name}_returns": returns[learners + index].tolist()
                for index, name in enumerate(extras)
            },
            **beside,
        }

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
        self._envs = []
