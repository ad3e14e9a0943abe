"""Base algorithms, one file each, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.registry import Listed, Registry

if TYPE_CHECKING:
    from p3s.algorithms.acktr import ACKTR
    from p3s.algorithms.base import Algorithm
    from p3s.algorithms.crossq import CrossQ
    from p3s.algorithms.crossq_td3 import CrossQTD3
    from p3s.algorithms.ddpg import DDPG
    from p3s.algorithms.dqn import DQN
    from p3s.algorithms.droq import DroQ
    from p3s.algorithms.flashsac import FlashSAC
    from p3s.algorithms.ppo import PPO
    from p3s.algorithms.redq import REDQ
    from p3s.algorithms.sac import SAC
    from p3s.algorithms.sac_2018 import SAC2018
    from p3s.algorithms.sac_discrete import SACDiscrete
    from p3s.algorithms.sql import SQL
    from p3s.algorithms.td3 import TD3
    from p3s.algorithms.tqc import TQC
    from p3s.algorithms.xqc import XQC

ALGORITHMS: Registry[Algorithm] = Registry(
    {
        "td3": Listed(
            "p3s.algorithms.td3:TD3",
            "Twin delayed deep deterministic policy gradient.",
            "continuous",
        ),
        "ddpg": Listed(
            "p3s.algorithms.ddpg:DDPG",
            "Deep deterministic policy gradient.",
            "continuous",
        ),
        "sac": Listed(
            "p3s.algorithms.sac:SAC",
            "Soft actor-critic with a learned temperature.",
            "continuous",
        ),
        "sac_2018": Listed(
            "p3s.algorithms.sac_2018:SAC2018",
            "Soft actor-critic with a V network and a fixed temperature.",
            "continuous",
        ),
        "redq": Listed(
            "p3s.algorithms.redq:REDQ",
            "Soft actor-critic with an ensemble of Qs, of which two make a target.",
            "continuous",
        ),
        "droq": Listed(
            "p3s.algorithms.droq:DroQ",
            "Soft actor-critic with dropout and layer normalization in its Qs.",
            "continuous",
        ),
        "tqc": Listed(
            "p3s.algorithms.tqc:TQC",
            "Soft actor-critic with truncated quantile critics.",
            "continuous",
        ),
        "crossq": Listed(
            "p3s.algorithms.crossq:CrossQ",
            "Soft actor-critic with batch normalization and without targets.",
            "continuous",
        ),
        "crossq_td3": Listed(
            "p3s.algorithms.crossq_td3:CrossQTD3",
            "Twin delayed policy gradient with batch normalization and without targets.",
            "continuous",
        ),
        "xqc": Listed(
            "p3s.algorithms.xqc:XQC",
            "Soft actor-critic with binned returns, batch normalization and unit weights.",
            "continuous",
        ),
        "flashsac": Listed(
            "p3s.algorithms.flashsac:FlashSAC",
            "Soft actor-critic with residual networks, binned returns and held noise.",
            "continuous",
        ),
        "sql": Listed(
            "p3s.algorithms.sql:SQL",
            "Soft Q-learning with a sampler for a policy.",
            "continuous",
        ),
        "dqn": Listed(
            "p3s.algorithms.dqn:DQN",
            "Deep Q-learning.",
            "discrete",
        ),
        "sac_discrete": Listed(
            "p3s.algorithms.sac_discrete:SACDiscrete",
            "Soft actor-critic for discrete actions, with a learned temperature.",
            "discrete",
        ),
        "ppo": Listed(
            "p3s.algorithms.ppo:PPO",
            "Proximal policy optimization.",
            "both",
        ),
        "acktr": Listed(
            "p3s.algorithms.acktr:ACKTR",
            "Actor-critic with natural gradients by K-FAC.",
            "continuous",
        ),
    }
)


def __getattr__(name: str) -> Any:
    if name == "Algorithm":
        from p3s.algorithms.base import Algorithm

        return Algorithm
    return ALGORITHMS.class_named(name)


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
    "FlashSAC",
    "SACDiscrete",
]
