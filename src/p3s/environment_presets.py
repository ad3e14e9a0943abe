"""What `p3s train ENV` takes where nothing is said: algorithm, steps and fields by environment.

    fields              of the environment's own algorithm; another algorithm keeps its defaults
    discount_factor     of every off-policy algorithm: how far ahead a task wants one to look

They belong to preset `recommended`, but for the algorithm: only discrete ones can learn discrete
actions, whatever the preset. `p3s presets` prints this table; docs/presets.md says what came of it
(benchmarks/environment_presets.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEFAULT_ALGORITHM = "td3"

PAPER = "P3S, Appendix I"
ZOO = "RL Baselines3 Zoo"
"""Its tuned values for one learner: hyperparams/td3.yml, dqn.yml, tqc.yml."""
TRIED = "benchmarks/environment_presets.py"
"""Chosen there, on seeds that are not reported."""


@dataclass(frozen=True)
class EnvironmentPreset:
    """What suits an environment."""

    group: str
    """classic control, MuJoCo or Box2D."""
    steps: int
    """Environment steps in total."""
    source: str
    """Where the values come from."""
    algorithm: str = DEFAULT_ALGORITHM
    discount_factor: float | None = None
    """None: the algorithm's own."""
    fields: dict[str, Any] = field(default_factory=dict)

    def values(self, algorithm: str, on_policy: bool) -> dict[str, Any]:
        """The fields that a run with this algorithm gets."""
        ahead = {} if self.discount_factor is None else {"discount_factor": self.discount_factor}
        own = self.fields if algorithm == self.algorithm else {}
        return {"steps": self.steps, **({} if on_policy else ahead), **own}


SMALL = {"hidden_sizes": (64, 64)}
CLASSIC, MUJOCO, BOX2D = "classic control", "MuJoCo", "Box2D"
ENVIRONMENTS: dict[str, EnvironmentPreset] = {
    "CartPole": EnvironmentPreset(CLASSIC, 30_000, TRIED, "dqn", fields=SMALL),
    "Acrobot": EnvironmentPreset(CLASSIC, 40_000, TRIED, "dqn", fields=SMALL),
    "MountainCar": EnvironmentPreset(
        CLASSIC,
        120_000,
        ZOO,
        "dqn",
        0.98,
        {**SMALL, "epsilon_updates": 24_000, "epsilon_end": 0.07, "learning_rate": 1e-3},
    ),
    "Pendulum": EnvironmentPreset(CLASSIC, 20_000, TRIED, fields=SMALL),
    "MountainCarContinuous": EnvironmentPreset(
        CLASSIC,
        60_000,
        ZOO,
        fields={
            **SMALL,
            "exploration_noise_kind": "ornstein_uhlenbeck",
            "exploration_noise": 0.5,
        },
    ),
    "InvertedPendulum": EnvironmentPreset(MUJOCO, 30_000, TRIED, fields=SMALL),
    "InvertedDoublePendulum": EnvironmentPreset(MUJOCO, 60_000, TRIED, fields=SMALL),
    "Reacher": EnvironmentPreset(MUJOCO, 60_000, TRIED, fields=SMALL),
    "Hopper": EnvironmentPreset(MUJOCO, 1_000_000, PAPER),
    "Walker2d": EnvironmentPreset(MUJOCO, 1_000_000, PAPER),
    "HalfCheetah": EnvironmentPreset(MUJOCO, 1_000_000, PAPER),
    "Ant": EnvironmentPreset(MUJOCO, 1_000_000, PAPER),
    "Swimmer": EnvironmentPreset(MUJOCO, 1_000_000, ZOO, discount_factor=0.9999),
    "Pusher": EnvironmentPreset(MUJOCO, 1_000_000, ZOO),
    "Humanoid": EnvironmentPreset(MUJOCO, 2_000_000, ZOO),
    "HumanoidStandup": EnvironmentPreset(MUJOCO, 2_000_000, ZOO),
    "LunarLander": EnvironmentPreset(
        BOX2D, 100_000, ZOO, "dqn", fields={"epsilon_updates": 12_000, "epsilon_end": 0.1}
    ),
    "LunarLanderContinuous": EnvironmentPreset(BOX2D, 300_000, ZOO, discount_factor=0.98),
    "BipedalWalker": EnvironmentPreset(BOX2D, 1_000_000, ZOO, discount_factor=0.98),
    "BipedalWalkerHardcore": EnvironmentPreset(BOX2D, 10_000_000, ZOO),
}
"""By family: the id without namespace, version and delay."""


def default_algorithm(family: str) -> str:
    """The algorithm for an environment of this family if none is named."""
    known = ENVIRONMENTS.get(family)
    return DEFAULT_ALGORITHM if known is None else known.algorithm
