"""The devices of a population: how jax is set up and compiles, and where learners are placed."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from p3s.algorithms import Algorithm
from p3s.errors import UserError
from p3s.types import Params

Library = Literal["eigen", "ynnpack"]
"""The library that multiplies matrices on a CPU."""
OPTIONS: dict[str, dict[str, Any]] = {
    # Parameters are overwritten after their last use: see that, instead of copying them first.
    "xla_cpu_copy_insertion_use_region_analysis": {"eigen": True, "ynnpack": True},
    "xla_cpu_experimental_ynn_fusion_type": {"eigen": "", "ynnpack": "individual_dot"},
}
WIDE = 512
"""Width of layers from which on YNNPACK multiplies faster (docs/speed.md has the measurements)."""
FEWEST_PER_DEVICE = 4
"""With fewer learners on a device, handing out the work costs more than it gains."""


def prepare(fewest: int | None = None) -> None:
    """Configure jax, unless the caller has; without effect once jax has started.

    One CPU device per core lets `learner_mesh` spread the learners over the cores. Compiled
    programs are cached on disk.
    fewest: how many devices there have to be at least.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "p3s" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # If jax runs already, or the system does not tell its cores, learners share one device.
    with contextlib.suppress(RuntimeError, AttributeError):
        count = max(len(os.sched_getaffinity(0)), fewest or 1)
        jax.config.update("jax_num_cpu_devices", count)


def learner_mesh(num_learners: int, num_devices: int | None = None) -> Mesh:
    """The local devices that take an equal share of the learners each, but not too few.

    On a CPU the devices are its cores: each then works through its own learners, whose
    parameters stay in its cache, where one program over many learners would wait for memory.
    num_devices: as many as these, which divide the learners, whether it pays or not.
    """
    devices = jax.local_devices()
    if num_devices is not None:
        if num_devices > len(devices):
            kind = devices[0].platform
            raise UserError(f"devices is {num_devices}, and jax has {len(devices)} here ({kind})")
        return Mesh(devices[:num_devices], ("learners",))
    most = min(len(devices), max(1, num_learners // FEWEST_PER_DEVICE))
    count = max(n for n in range(1, most + 1) if num_learners % n == 0)
    return Mesh(devices[:count], ("learners",))


def place(tree: Params, mesh: Mesh, stacked: bool) -> Params:
    """Put a tree on the mesh: split along its leading learner axis, or whole on every device."""
    if mesh.size == 1:
        return jax.device_put(tree, mesh.devices[0])
    spec = PartitionSpec("learners") if stacked else PartitionSpec()
    return jax.device_put(tree, NamedSharding(mesh, spec))


def library_for(algorithm: Algorithm) -> Library:
    """The faster library for the products of this algorithm's updates.

    The choice depends on nothing but the algorithm's fields: the two round differently, and a run
    must give the same bits when it is repeated or resumed.
    """
    half_width = getattr(algorithm, "precision", "float32") == "bfloat16"
    sizes = getattr(algorithm, "hidden_sizes", ())
    wide = bool(sizes) and min(sizes) >= WIDE
    return "ynnpack" if half_width or wide else "eigen"


@lru_cache
def compiler_options(library: Library = "eigen") -> dict[str, Any]:
    """The options for this machine that its version of the compiler knows."""
    if jax.default_backend() != "cpu":
        return {}

    def known(name: str, value: Any) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    values = {name: by_library[library] for name, by_library in OPTIONS.items()}
    return {name: value for name, value in values.items() if known(name, value)}
