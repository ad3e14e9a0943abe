"""A policy's file, read and checked: nothing in it is executed, and nothing in it is believed.

The description is checked value by value before anything is made from it, and the arrays against
the shapes that it implies (policy.py). So a file takes no more memory than its own size.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from p3s.envs import EnvName
from p3s.envs.flattening import flat_size
from p3s.errors import UserError
from p3s.runs.checksums import parse_json
from p3s.types import EnvSpec, ObservationSpec

FORMAT = "p3s-policy-2"
FIRST_FORMAT = "p3s-policy-1"
"""p3s 0.1: flat observations only, and shorter names of arrays."""
CHECKSUM = "crc32"
"""Files of older versions have none."""
LARGEST = 1 << 22
"""No observation or action has more elements."""


def checksum(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> int:
    """Of the description and of every array with its name, type and shape."""
    total = zlib.crc32(json.dumps(description, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return total


def read_policy_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a policy file, as far as they can be checked alone."""
    if not path.is_file():
        raise UserError(f"there is no policy file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = parse_json(metadata["p3s"])
    except (SafetensorError, OSError, OverflowError) as error:
        raise UserError(f"{path} is damaged or no policy file: {error}") from error
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a p3s policy: it has no description") from error
    known = (FORMAT, FIRST_FORMAT)
    if not isinstance(description, dict) or description.get("format") not in known:
        raise UserError(f"{path} is not in a format that this version reads ({', '.join(known)})")
    expected = description.pop(CHECKSUM, None)
    if expected is not None and expected != checksum(description, arrays):
        raise UserError(f"{path} is damaged: it is not what was written")
    return description, arrays


def read_spec(description: dict[str, Any]) -> EnvSpec:
    """Take the shapes out of a description; ValueError if they make no sense."""
    shape, dtype = description.pop("observation_shape"), description.pop("observation_dtype")
    size, discrete = description.pop("action_size"), description.pop("discrete")
    sound = isinstance(shape, list) and 1 <= len(shape) <= 3 and all(map(_is_size, shape))
    if not sound or math.prod(shape) >= LARGEST or dtype not in ("float32", "uint8"):
        raise ValueError("its observations make no sense")
    if not _is_size(size) or not isinstance(discrete, bool):
        raise ValueError("its actions make no sense")
    masked = description.pop("masked", False)
    spec = EnvSpec(ObservationSpec(tuple(shape), dtype), size, discrete, masked)
    if not isinstance(masked, bool) or (masked and not discrete) or spec.features.shape[-1] < 1:
        raise ValueError("its masks make no sense")
    return spec


def check_layers(fields: Any, largest: int) -> None:
    """Raise ValueError if a layer is larger than anything that could be there."""
    values = fields.values() if isinstance(fields, dict) else ()
    sizes = [size for value in values if isinstance(value, list | tuple) for size in value]
    if any(isinstance(size, int | float) and size > largest for size in sizes):
        raise ValueError(f"a layer of {max(sizes)} units makes no sense here")


def check_about(about: dict[str, Any], spec: EnvSpec) -> None:
    """Raise ValueError if a description's other values make no sense."""
    if spec.discrete:
        if not _is_whole(about["action_start"]):
            raise ValueError("its actions begin nowhere")
    else:
        for name in ("action_low", "action_high"):
            bounds = about[name]
            if not isinstance(bounds, list) or len(bounds) != spec.action_size:
                raise ValueError(f"{name} does not fit its actions")
            if not all(_is_number(bound) for bound in bounds):
                raise ValueError(f"{name} holds something that is no number")
        shape = about["action_shape"]
        if not isinstance(shape, list) or not all(map(_is_size, shape)):
            raise ValueError("action_shape is no shape")
        if math.prod(shape) != spec.action_size:
            raise ValueError("action_shape does not fit its actions")
        if not re.fullmatch("u?int(8|16|32|64)", str(about.get("action_dtype", "int64"))):
            raise ValueError("action_dtype is no type of whole numbers")
    seen = about.get("observations_seen", 1)
    if not _is_size(seen) or spec.features.shape[-1] % seen:
        raise ValueError("observations_seen does not fit its observations")
    space = about.get("observation_space")
    if space is not None and flat_size(space) * seen != spec.features.size:
        raise ValueError("observation_space does not fit its observations")
    if about.get("environment") is not None:
        EnvName.from_json(about["environment"])
    if "run" in about:
        _check_run(about["run"])


def _check_run(run: Any) -> None:
    if not isinstance(run, dict) or not all(_is_whole(run[name]) for name in ("step", "learner")):
        raise ValueError("it does not say which run it is from")
    if not _is_number(run.get("champion_return", 0.0)):
        raise ValueError("champion_return is no number")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53


def _is_size(value: Any) -> bool:
    return _is_whole(value) and 0 < value < LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)
