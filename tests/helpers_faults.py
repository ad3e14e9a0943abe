"""Environments that misbehave, which workers can have too, and learners that are spoiled."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from p3s.envs import Adapter
from p3s.train import Training
from p3s.trees import pick
from tests.helpers import leaves


class Fault(gymnasium.Env):
    """Ends after 20 steps; its first copy to come so far misbehaves once, at its 30th step.

    kind: what it does then.
    mark: a file that is left when it has happened, so that it does not happen again.
    """

    def __init__(self, kind: str, mark: Path | None = None, at: int = 30, length: int = 20) -> None:
        self.kind, self.mark, self.at, self.length = kind, mark, at, length
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.count, self.total, self.kept = 0, 0, []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        if self.kind == "hangs from now on" and self.mark is not None and self.mark.exists():
            time.sleep(3600)
        self.count = 0
        return self._observe(), {}

    def _observe(self):
        return np.array([self.count, self.np_random.random()], np.float32)

    def step(self, action):
        self.count += 1
        self.total += 1
        reward, observation = float(action[0]), self._observe()
        terminated = self.count == self.length
        if self.total >= self.at and self._happens():
            observation, reward, terminated = self._misbehave(observation, reward, terminated)
        return observation, reward, terminated, False, {}

    def _happens(self) -> bool:
        if self.mark is None:
            return True
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _misbehave(self, observation, reward, terminated):
        if self.kind == "raises":
            raise RuntimeError("the wheels came off")
        if self.kind == "hangs":
            time.sleep(3600)
        if self.kind in ("SIGSEGV", "SIGABRT", "SIGKILL"):
            os.kill(os.getpid(), signal.Signals[self.kind])
        if self.kind == "exits":
            os._exit(3)
        if self.kind == "leaves a child":
            if os.fork() == 0:
                time.sleep(60)  # with all that its parent had open
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hangs from now on":
            time.sleep(3600)
        if self.kind == "leaks":
            self.kept.append(np.ones(1 << 20))
            raise MemoryError(f"no room for {len(self.kept)} arrays")
        if self.kind == "changes its action space":
            self.action_space = spaces.Box(-5.0, 5.0, (2,), np.float32)
            return observation, reward, True
        if self.kind == "changes its observation space":
            self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
            return observation, reward, True
        if self.kind == "never ends":
            return observation, reward, False
        if self.kind == "ends every step":
            return observation, reward, True
        return ANSWERS[self.kind](observation, reward, terminated)


ANSWERS = {
    "wrong shape": lambda seen, paid, over: (np.zeros(3, np.float32), paid, over),
    "complex numbers": lambda seen, paid, over: (seen * 1j, paid, over),
    "text as a reward": lambda seen, paid, over: (seen, "1.5", over),
    "wrong dtype": lambda seen, paid, over: (np.array(["a", "b"]), paid, over),
    "NaN observation": lambda seen, paid, over: (seen * np.nan, paid, over),
    "NaN reward": lambda seen, paid, over: (seen, float("nan"), over),
    "infinite reward": lambda seen, paid, over: (seen, float("inf"), over),
    "reward beyond float32": lambda seen, paid, over: (seen, 1e39, over),
    "several rewards": lambda seen, paid, over: (seen, np.zeros(2), over),
    "no reward": lambda seen, paid, over: (seen, None, over),
    "float64 and ints": lambda seen, paid, over: (seen.astype(np.float64), int(paid), over),
}


@dataclass(frozen=True)
class MakeFault:
    """Makes a `Fault` as the learners see it, in any process."""

    kind: str
    mark: Path | None = None
    at: int = 30

    def __call__(self) -> Adapter:
        return Adapter(Fault(self.kind, self.mark, self.at))


def poison(training: Training, learner: int, part: str = "policy", value=jnp.nan) -> None:
    """Turn one learner's parameters into something that is not a number."""
    learners = training.crew.updater.state.learners
    wrong = jax.tree.map(
        lambda leaf: leaf.at[learner].set(value) if leaf.dtype == jnp.float32 else leaf,
        getattr(learners, part),
    )
    training.crew.updater.settle()
    training.crew.updater.state = training.crew.updater.state._replace(
        learners=learners._replace(**{part: wrong})
    )


def learner_leaves(training: Training, learner: int) -> list[np.ndarray]:
    """Everything that belongs to one learner."""
    state = training.crew.updater.state
    return [
        leaf
        for name in training.scheme.stacked
        for leaf in leaves(pick(getattr(state, name), learner))
    ]
