"""Files as a stranger, or an accident, would change them: bytes, JSON values, headers of arrays."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

SCRIPT = "<script>alert(1)</script>"
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**12, 10**30, -(10**18), 0.5, -1e308, float("nan"), float("inf"), "",
    "x", SCRIPT, "../../outside", "/etc/passwd", "evil:Evil", [], {}, [[]], [1e12] * 3, {"a": 1},
    [2**31, 2**31], [2**21] * 3, ["evil"], "[red]x[/", "\x1b[31m",
)  # fmt: skip
"""What is put in the place of others."""


def changed_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, added, doubled or missing."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        kind = rng.choice(("flip", "insert", "delete", "double", "cut", "zeros"))
        if kind == "flip" and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == "insert":
            data[place:place] = rng.randbytes(rng.randint(1, 8))
        elif kind == "delete":
            del data[place : place + rng.randint(1, 40)]
        elif kind == "double":
            data[place:place] = data[place : place + rng.randint(1, 60)]
        elif kind == "cut" and rng.random() < 0.3:
            del data[place:]
        else:
            data[place : place + 8] = bytes(8)
    return bytes(data)


def changed_json(value: Any, rng: random.Random) -> Any:
    """One or a few values somewhere in a JSON value replaced, removed, renamed or repeated."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(value))
        if not places:
            return rng.choice(VALUES)
        parent, key = rng.choice(places)
        kind = rng.choice(("replace", "replace", "replace", "remove", "rename"))
        if kind == "replace":
            parent[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == "remove" or isinstance(parent, list):
            del parent[key]
        else:
            parent[rng.choice((SCRIPT, "x", f"{key}x"))] = parent.pop(key)
    return value


def _places(value: Any) -> Any:
    """Every place in a JSON value: what it is in, and its key or index there."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield value, key
        yield from _places(item)


def header_of(content: bytes) -> dict[str, Any]:
    """The header of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])


def with_header(content: bytes, header: Any) -> bytes:
    """A safetensors file with another header."""
    size = int.from_bytes(content[:8], "little")
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def changed_description(content: bytes, rng: random.Random) -> bytes:
    """A policy file with another description, and a checksum of nothing."""
    header = header_of(content)
    description = json.loads(header["__metadata__"]["p3s"])
    del description["crc32"]
    text = json.dumps(changed_json(description, rng))
    header["__metadata__"]["p3s"] = text
    return with_header(content, header)


def changed_header(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file whose header claims something else."""
    return with_header(content, changed_json(header_of(content), rng))
