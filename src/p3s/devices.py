"""Set jax up for a population: one CPU device per core, and a cache of compiled programs."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def prepare() -> None:
    """Configure jax, as far as the caller has not; without effect once jax has started.

    With as many CPU devices as cores the learners are spread over the cores (learners.py).
    """
    if jax.config.jax_compilation_cache_dir is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "p3s" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except (RuntimeError, AttributeError):
        pass  # jax runs already, or this system does not tell: learners share one device
