"""Plain values as JSON: numbers, text, arrays, random generators, and lists and dicts of them.

Reading them executes nothing, unlike unpickling. An object that occurs twice is not plain, since it
would come back as two.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np


class NotPlain(Exception):
    """A value that has no plain form."""


def to_plain(value: Any) -> bytes:
    """A value as JSON; NotPlain if it has no such form."""
    return json.dumps(_encode(value, {})).encode()


def from_plain(data: bytes) -> Any:
    """The value that `to_plain` wrote; ValueError if it is something else."""
    try:
        return _decode(json.loads(data))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a plain value: {error}") from error


def _encode(value: Any, seen: dict[int, Any]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if id(value) in seen and not isinstance(value, tuple | bytes | np.generic):
        raise NotPlain("an object occurs twice")
    seen[id(value)] = value  # kept, so that no other object gets its id
    if type(value) is list:
        return [_encode(item, seen) for item in value]
    if type(value) is tuple:
        return {"tuple": [_encode(item, seen) for item in value]}
    if type(value) is dict:
        return {"dict": [[_encode(key, seen), _encode(own, seen)] for key, own in value.items()]}
    if type(value) is bytes:
        return {"bytes": _to_text(value)}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"number": [value.dtype.str, _to_text(value.tobytes())]}
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return {"array": [value.dtype.str, list(value.shape), _to_text(value.tobytes())]}
    if type(value) is np.random.Generator and isinstance(value.bit_generator, np.random.PCG64):
        return {"generator": _encode(value.bit_generator.state, seen)}
    raise NotPlain(f"{type(value).__name__} has no plain form")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(_decode(item) for item in content)
    if kind == "dict":
        return {_decode(key): _decode(own) for key, own in content}
    if kind == "bytes":
        return _from_text(content)
    if kind == "number":
        return np.frombuffer(_from_text(content[1]), _number_type(content[0]))[0]
    if kind == "array":
        flat = np.frombuffer(_from_text(content[2]), _number_type(content[0]))
        return flat.reshape(content[1]).copy()
    if kind == "generator":
        generator = np.random.Generator(np.random.PCG64(0))
        generator.bit_generator.state = _decode(content)
        return generator
    raise ValueError(f"{kind!r} is not a kind of plain value")


def _number_type(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in "biufc":
        raise ValueError(f"{name!r} is not a type of numbers")
    return dtype


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_text(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
