"""Ray, an extra: one line if it is missing, and one way to start it."""

from __future__ import annotations

import importlib
import os
import re
import socket
from typing import Any

from p3s.errors import UserError
from p3s.machine import available_cores

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise UserError("engine ray needs Ray: pip install 'p3s[ray]'") from error

cloudpickle: Any = importlib.import_module("ray.cloudpickle")
LOOPBACK = "127.0.0.1"
TALKATIVE = "RAY_LOG_TO_DRIVER"
"""Ray's own variable: 1 shows what Ray has to say."""
LOOK_SECONDS = 5.0
"""In which a cluster has to answer."""


def connect(address: str | None) -> None:
    """Join the cluster at an address, or start Ray on this machine; once in a process."""
    if ray.is_initialized():
        return
    if address is not None:
        _look_for(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    talks = os.environ.get(TALKATIVE) == "1"
    quiet: dict[str, Any] = {} if talks else {"log_to_driver": False, "logging_level": "error"}
    if not talks:
        _leave_out_what_daemons_say()
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            ray.init(
                address="local",
                num_cpus=len(available_cores()),
                include_dashboard=False,
                _node_ip_address=LOOPBACK,
                **quiet,
            )
    except Exception as error:  # whatever Ray makes of an invalid address
        reason = str(error).strip().split("\n")[0]
        where = "on this machine" if address is None else f"at {address}"
        raise UserError(f"there is no Ray cluster {where}: {reason}") from error


def _leave_out_what_daemons_say() -> None:
    """Keep dumps of Ray's daemons, forty lines for a lost machine, out of a run's own lines.

    `log_to_driver` does not, and there is no setting for it. Ray's own log files have them.
    """
    worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *arguments, **options: None


def _look_for(address: str) -> None:
    """UserError unless it is auto, or HOST:PORT with a listener: Ray would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch("[A-Za-z0-9.:_-]+", host) or not re.fullmatch("[0-9]{1,5}", port):
        raise UserError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host, int(port)), LOOK_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise UserError(f"there is no Ray cluster at {address}: {error}") from error


__all__ = [
    "PlacementGroupSchedulingStrategy",
    "RayError",
    "RayTaskError",
    "cloudpickle",
    "connect",
    "placement_group",
    "ray",
    "remove_placement_group",
]
