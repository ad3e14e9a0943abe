"""Base algorithms, one file each, found by name."""

from __future__ import annotations

from p3s.algorithms.base import Algorithm
from p3s.algorithms.td3 import TD3

ALGORITHMS: dict[str, type[Algorithm]] = {algorithm.name: algorithm for algorithm in (TD3,)}

__all__ = ["ALGORITHMS", "TD3", "Algorithm"]
