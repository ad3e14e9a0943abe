"""Base algorithms, one file each, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.registry import Listed, Registry

if TYPE_CHECKING:
    from p3s.algorithms.base import Algorithm

ALGORITHMS: Registry[Algorithm] = Registry(
    "p3s.algorithms",
    {
        "td3": Listed("TD3", "continuous"),
        "ddpg": Listed("DDPG", "continuous"),
        "sac": Listed("SAC", "continuous"),
        "sac_2018": Listed("SAC2018", "continuous"),
        "redq": Listed("REDQ", "continuous"),
        "droq": Listed("DroQ", "continuous"),
        "tqc": Listed("TQC", "continuous"),
        "crossq": Listed("CrossQ", "continuous"),
        "crossq_td3": Listed("CrossQTD3", "continuous"),
        "xqc": Listed("XQC", "continuous"),
        "flashsac": Listed("FlashSAC", "continuous"),
        "sql": Listed("SQL", "continuous"),
        "dqn": Listed("DQN", "discrete"),
        "sac_discrete": Listed("SACDiscrete", "discrete"),
        "ppo": Listed("PPO", "both"),
        "acktr": Listed("ACKTR", "continuous"),
    },
)


def __getattr__(name: str) -> Any:
    if name == "Algorithm":
        from p3s.algorithms.base import Algorithm

        return Algorithm
    return ALGORITHMS.class_named(name)


__all__ = ["ALGORITHMS", "Algorithm"]
