"""Base algorithms, one file each, found by name."""

from __future__ import annotations

from p3s.algorithms.acktr import ACKTR
from p3s.algorithms.base import Algorithm
from p3s.algorithms.crossq import CrossQ
from p3s.algorithms.crossq_td3 import CrossQTD3
from p3s.algorithms.ddpg import DDPG
from p3s.algorithms.dqn import DQN
from p3s.algorithms.droq import DroQ
from p3s.algorithms.ppo import PPO
from p3s.algorithms.redq import REDQ
from p3s.algorithms.sac import SAC
from p3s.algorithms.sac_2018 import SAC2018
from p3s.algorithms.sac_discrete import SACDiscrete
from p3s.algorithms.sql import SQL
from p3s.algorithms.td3 import TD3
from p3s.algorithms.tqc import TQC
from p3s.algorithms.xqc import XQC

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        TD3,
        DDPG,
        SAC,
        SAC2018,
        REDQ,
        DroQ,
        TQC,
        CrossQ,
        CrossQTD3,
        XQC,
        SQL,
        DQN,
        SACDiscrete,
        PPO,
        ACKTR,
    )
}

__all__ = [
    "ACKTR",
    "ALGORITHMS",
    "DDPG",
    "DQN",
    "PPO",
    "REDQ",
    "SAC",
    "SAC2018",
    "SQL",
    "TD3",
    "TQC",
    "XQC",
    "Algorithm",
    "CrossQ",
    "CrossQTD3",
    "DroQ",
    "SACDiscrete",
]
