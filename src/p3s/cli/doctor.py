"""`p3s doctor`: what is installed and what works here, to paste into a bug report."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from p3s.learning import devices
from p3s.machine import available_cores, available_memory
from p3s.runs.provenance import provenance, version_of

PACKAGES = ("safetensors", "tyro", "rich")
"""In addition to those that every run records."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PJRT_NPROC", "XLA_FLAGS", "JAX_PLATFORMS")
NOT_FOR_USERS = ("dev", "docs", "bench", "cuda")
"""Extras that say nothing of an installation."""
RENDER = """
import gymnasium
env = gymnasium.make("InvertedPendulum-v5", render_mode="rgb_array")
env.reset(seed=0)
print(env.render().shape)
"""
RENDER_SECONDS = 60.0


@dataclass(frozen=True)
class Options:
    """No options."""


def run(options: Options) -> int:
    """Print a line for everything."""
    for name, text in findings():
        print(f"{name:<12} {text}")
    return 0


def findings() -> Iterator[tuple[str, str]]:
    """What there is, each with its name."""
    origin = provenance()
    versions = {**origin["versions"], **{name: version_of(name) for name in PACKAGES}}
    yield "p3s", f"{versions.pop('p3s')} {(origin['commit'] or '')[:12]}".strip()
    yield "system", f"{platform.platform()}, {platform.machine()}"
    yield "packages", ", ".join(f"{name} {found or 'missing'}" for name, found in versions.items())
    memory = available_memory()
    free = "" if memory is None else f", {memory / 1e9:,.1f} GB of memory free"
    yield "machine", f"{len(available_cores())} of {os.cpu_count()} cores{free}"
    yield "devices", _devices()
    chosen = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    yield "settings", ", ".join(chosen) or "none in the environment"
    yield "cache", _cache()
    yield "renderer", _renderer()
    for extra, missing in extras().items():
        hint = f"missing {', '.join(missing)}: pip install 'p3s[{extra}]'"
        yield f"[{extra}]", hint if missing else "installed"


def extras() -> dict[str, list[str]]:
    """What is missing for each extra, as the installed package lists them."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires("p3s") or ():
        match = re.match(r"([A-Za-z0-9_.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if match is None or match[2] in NOT_FOR_USERS:
            continue
        missing = found.setdefault(match[2], [])
        if version_of(match[1]) is None:
            missing.append(match[1])
    return found


def _devices() -> str:
    import jax

    devices.prepare()
    try:
        found = jax.local_devices()
    except RuntimeError as error:
        return f"none: {str(error).splitlines()[0]}"
    return f"{len(found)} × {found[0].platform} ({found[0].device_kind})"


def _cache() -> str:
    """The folder of compiled programs, and whether it can be written."""
    import jax

    folder = Path(getattr(jax.config, "jax_compilation_cache_dir", None) or "")
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    programs = len(list(folder.glob("*-cache"))) if folder.exists() else 0
    can = "" if os.access(existing, os.W_OK) else ", which cannot be written"
    return f"{folder}: {programs} programs{can}"


def _renderer() -> str:
    """Whether MuJoCo draws, in a process of its own: a broken driver can abort it."""
    if version_of("mujoco") is None:
        return "MuJoCo is missing: pip install 'p3s[mujoco]'"
    how = f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", RENDER], capture_output=True, text=True, timeout=RENDER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"{how} does not answer"
    if done.returncode == 0:
        return f"{how} draws"
    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"{how} cannot draw: {why}"
