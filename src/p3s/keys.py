"""Named random streams: a draw depends on (seed, stream name, indices), never on call order.

A new consumer therefore disturbs no other stream, a resumed run draws what the uninterrupted one
would have drawn, and learner i draws the same numbers wherever it runs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import jax


def _digest(seed: int, stream: str, indices: tuple[int, ...]) -> bytes:
    text = f"{seed}/{stream}/" + "/".join(map(str, indices))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def key(seed: int, stream: str, *indices: int) -> jax.Array:
    """A jax key for this name; compiled code folds the step and the learner into it."""
    import jax  # not for workers that only play

    return jax.random.key(int.from_bytes(_digest(seed, stream, indices)[:4], "little"))


def generator(seed: int, stream: str, *indices: int) -> np.random.Generator:
    """A numpy generator for this name, for draws on the host."""
    state = np.frombuffer(_digest(seed, stream, indices), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=state))


def integer(seed: int, stream: str, *indices: int) -> int:
    """A non-negative 31-bit integer for this name, as environments take for a seed."""
    return int.from_bytes(_digest(seed, stream, indices)[:4], "little") >> 1


def per_learner(step_key: jax.Array, indices: jax.Array) -> jax.Array:
    """One key for each of these learners; learner i's is the same in any population."""
    import jax

    return jax.vmap(lambda index: jax.random.fold_in(step_key, index))(indices)
