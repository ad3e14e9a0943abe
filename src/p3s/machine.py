"""This machine: its cores and its memory, how work is split over them, and optional packages."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from p3s.errors import UserError


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_shares(cores: list[int], jobs: int) -> list[list[int]]:
    """The cores of each of `jobs` processes: equally many, and disjoint if there are enough."""
    share = max(len(cores) // jobs, 1)
    return [[cores[(job * share + i) % len(cores)] for i in range(share)] for job in range(jobs)]


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, where the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            values = dict(line.split(":", 1) for line in lines)
        return int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def equal_parts(count: int, num_parts: int) -> list[range]:
    """0 to count - 1 in parts of equal size, as far as that is possible."""
    parts = np.array_split(np.arange(count), num_parts)
    return [range(int(part[0]), int(part[-1]) + 1) for part in parts]


def needed(what: str, extra: str, *modules: str) -> Any:
    """The last of these modules of an extra; UserError says what needs them if one is missing."""
    try:
        return [importlib.import_module(module) for module in modules][-1]
    except ImportError as error:
        raise UserError(f"{what}: pip install 'p3s[{extra}]'") from error


def require_matplotlib() -> Any:
    """matplotlib, which draws figures."""
    what = "drawing figures requires matplotlib"
    return needed(what, "study", "matplotlib.figure", "matplotlib")


def require_polars() -> Any:
    """polars, which makes tables of results."""
    return needed("tables of results require polars", "study", "polars")


def require_optuna() -> Any:
    """optuna, which proposes what trials try."""
    optuna = needed("p3s tune requires optuna", "tune", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
