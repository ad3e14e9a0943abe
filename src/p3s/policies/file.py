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
from p3s.envs.flattening import flat_size, images_in
from p3s.errors import UserError
from p3s.fields.checks import Checks, each, is_whole, misfit
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
        raise UserError(f"{path} is damaged or not a policy file: {error}") from error
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a p3s policy: it has no description") from error
    known = (FORMAT, FIRST_FORMAT)
    if not isinstance(description, dict) or description.get("format") not in known:
        raise UserError(f"{path} is not in a format that this version reads ({', '.join(known)})")
    expected = description.pop(CHECKSUM, None)
    if expected is not None and expected != checksum(description, arrays):
        raise UserError(f"{path} is damaged: it is not what was written")
    if "observations_seen" in description:  # its name in early p3s 0.2
        description["num_stacked_observations"] = description.pop("observations_seen")
    return description, arrays


def read_spec(description: dict[str, Any]) -> EnvSpec:
    """Take the shapes out of a description; ValueError if there are no such environments."""
    shape, dtype = description.pop("observation_shape"), description.pop("observation_dtype")
    size, discrete = description.pop("action_size"), description.pop("discrete")
    known = each(_is_size, 1)(shape) and len(shape) <= 3 and math.prod(shape) < LARGEST
    if not known or dtype not in ("float32", "uint8"):
        raise ValueError("its observations are invalid")
    if not _is_size(size) or not isinstance(discrete, bool):
        raise ValueError("its actions are invalid")
    masked = description.pop("masked", False)
    images = description.pop("observation_images", [])
    if not isinstance(images, list) or not all(each(_is_size)(image) for image in images):
        raise ValueError("its images are invalid")
    observation = ObservationSpec(tuple(shape), dtype, tuple(map(tuple, images)))
    spec = EnvSpec(observation, size, discrete, masked)
    if not isinstance(masked, bool) or (masked and not discrete) or spec.features.shape[-1] < 1:
        raise ValueError("its masks are invalid")
    if images and not _is_packed(spec.features):
        raise ValueError("its images do not fit")
    return spec


def _is_packed(spec: ObservationSpec) -> bool:
    """Whether images and the numbers beside them fill an observation."""
    axes = all(len(image) in (3, 4) for image in spec.images)
    return axes and spec == ObservationSpec.packed(spec.num_numbers, spec.images)


def check_layers(fields: Any, largest: int) -> None:
    """Raise ValueError if a layer is larger than anything that could be there."""
    values = fields.values() if isinstance(fields, dict) else ()
    sizes = [size for value in values if isinstance(value, list | tuple) for size in value]
    if any(isinstance(size, int | float) and size > largest for size in sizes):
        raise ValueError(f"a layer of {max(sizes)} units is too large")


def check_about(about: dict[str, Any], spec: EnvSpec) -> None:
    """Raise ValueError if a description's other values do not fit its shapes."""
    if spec.discrete:
        invalid = misfit(about, {"action_start": is_whole})
    else:
        bounds, kind = each(_is_float), re.compile("u?int(8|16|32|64)")
        about = {"action_dtype": "int64", **about}
        invalid = misfit(
            about,
            {
                "action_low": lambda low: bounds(low) and len(low) == spec.action_size,
                "action_high": lambda high: bounds(high) and len(high) == spec.action_size,
                "action_shape": lambda shape: (
                    each(_is_size)(shape) and math.prod(shape) == spec.action_size
                ),
                "action_dtype": lambda name: kind.fullmatch(str(name)) is not None,
            },
        )
    seen, space = about.get("num_stacked_observations", 1), about.get("observation_space")
    if not _is_size(seen) or spec.features.shape[-1] % seen:
        invalid = "num_stacked_observations"
    elif space is not None and not _fits(space, spec.features, seen):
        invalid = "observation_space"
    run = about.get("run", {"step": 0, "learner": 0})
    if not isinstance(run, dict) or misfit({"champion_return": 0.0, **run}, _RUN):
        invalid = "run"
    if invalid is not None:
        raise ValueError(f"its {invalid} is missing or invalid")
    if about.get("environment") is not None:
        EnvName.from_json(about["environment"])


def _fits(space: Any, features: ObservationSpec, seen: int) -> bool:
    """Whether observations of a described space are those that a policy sees."""
    fits = flat_size(space) * seen == features.num_numbers
    return fits and tuple(images_in(space).values()) == features.images


def _is_size(value: Any) -> bool:
    return is_whole(value) and 0 < value < LARGEST


def _is_float(value: Any) -> bool:
    """Whether it is a number, an infinite one too."""
    return isinstance(value, float) or is_whole(value)


_RUN: Checks = {"step": is_whole, "learner": is_whole, "champion_return": _is_float}
