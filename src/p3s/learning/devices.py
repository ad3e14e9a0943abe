"""Set jax up for a population: one CPU device per core, and a cache of compiled programs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax


def prepare() -> None:
    """Configure jax, as far as the caller has not; without effect once jax has started.

    With as many CPU devices as cores the learners are spread over the cores (learners.py).
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "p3s" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # Where jax runs already, or the system does not tell its cores, learners share one device.
    with contextlib.suppress(RuntimeError, AttributeError):
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
