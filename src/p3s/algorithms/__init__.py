"""Base algorithms, one file each, found by name."""

from __future__ import annotations

from p3s.algorithms.base import Algorithm
from p3s.algorithms.ddpg import DDPG
from p3s.algorithms.dqn import DQN
from p3s.algorithms.sac import SAC
from p3s.algorithms.sac_2018 import SAC2018
from p3s.algorithms.sac_discrete import SACDiscrete
from p3s.algorithms.sql import SQL
from p3s.algorithms.td3 import TD3

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        TD3,
        DDPG,
        SAC,
        SAC2018,
        SQL,
        DQN,
        SACDiscrete,
    )
}

__all__ = ["ALGORITHMS", "DDPG", "DQN", "SAC", "SAC2018", "SQL", "TD3", "Algorithm", "SACDiscrete"]
