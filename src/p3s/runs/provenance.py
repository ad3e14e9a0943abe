"""Where a run comes from: versions, commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def provenance() -> dict[str, Any]:
    """Versions, commit and machine, for config.json; the version of a missing package is None."""
    packages = ("p3s", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco")
    versions = {name: version_of(name) for name in packages}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def version_of(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, if it runs from one."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        tracked = ["git", "-C", str(here), "ls-files", "--error-unmatch", __file__]
        subprocess.run(tracked, capture_output=True, check=True)
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
