"""What `p3s train ENV` takes where nothing is said: algorithm, steps and fields by environment.

    fields              of the environment's own algorithm; another algorithm keeps its defaults
    discount_factor     of every off-policy algorithm: how far ahead a task wants one to look

They belong to preset `recommended`, but for the algorithm: only discrete ones can learn discrete
actions, whatever the preset. Where the name tells nothing, the actions do (`suitability.py`).
`p3s presets` prints this table; docs/presets.md says what came of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from p3s.envs.names import EnvName

DEFAULT_ALGORITHM, DISCRETE_ALGORITHM = "td3", "dqn"

PAPER = "P3S, Appendix I"
ZOO = "RL Baselines3 Zoo"
"""Its tuned values for one learner: hyperparams/td3.yml, dqn.yml, tqc.yml."""
TRIED = "own trials"
"""Chosen by benchmarks/environment_presets.py, on seeds that are not reported."""


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
    "CartPole": EnvironmentPreset(
        CLASSIC,
        50_000,
        TRIED,
        "dqn",
        fields={**SMALL, "learning_rate": 2.5e-4, "target_rate": 0.005, "target_period": 1},
    ),
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


def preset_of(name: EnvName | None) -> EnvironmentPreset | None:
    """What is known of an environment; nothing of one that only has the name of Gymnasium's."""
    if name is None:
        return None
    if re.search("[/:]", name.id) and not name.id.startswith(("p3s/", "func:phys2d/")):
        return None
    return ENVIRONMENTS.get(name.family)


def default_algorithm(name: EnvName | None) -> str:
    """The algorithm for an environment, as far as its name tells."""
    known = preset_of(name)
    return DEFAULT_ALGORITHM if known is None else known.algorithm
