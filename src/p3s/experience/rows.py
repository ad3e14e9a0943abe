"""Transitions as rows of bytes, so that a minibatch is one gather and one transfer to the device.

A row is a packed record; its fields, in order:

    observation, action (float32), reward (float32), discount (float32), next_observation

With float32 observations an array of rows is float32 itself. With uint8 images it is uint8, and
the device reads the float32 fields out of their bytes. Rollouts add two fields, `ended` and
`present`, and a replay of several-step returns or of normalized rewards one, `steps_back`. A row of
a several-step return has as many rewards and discounts as steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from p3s.types import Array, EnvSpec, Transition


@lru_cache(maxsize=8)
def record(spec: EnvSpec, extra: Sequence[str] = (), num_steps: int = 1) -> np.dtype:
    """The fields of a row, without padding between them."""
    steps = () if num_steps == 1 else (num_steps,)
    observation = (spec.observation.dtype, spec.observation.shape)
    action_size = 1 if spec.discrete else spec.action_size
    return np.dtype(
        [
            ("observation", *observation),
            ("action", np.float32, (action_size,)),
            ("reward", np.float32, steps),
            ("discount", np.float32, steps),
            ("next_observation", *observation),
            *((name, np.float32) for name in extra),
        ]
    )


def empty_rows(
    count: int, spec: EnvSpec, extra: Sequence[str] = (), num_steps: int = 1
) -> np.ndarray:
    """Room for `count` rows, (count, columns)."""
    word = np.dtype(spec.observation.dtype)
    return np.empty((count, record(spec, extra, num_steps).itemsize // word.itemsize), word)


def fields(
    rows: np.ndarray, spec: EnvSpec, extra: Sequence[str] = (), num_steps: int = 1
) -> np.ndarray:
    """The same memory as records, (...): fields are read and written by name; on the host."""
    return rows.view(record(spec, extra, num_steps))[..., 0]


def pack(spec: EnvSpec, transitions: Transition, extra: Sequence[str] = ()) -> np.ndarray:
    """A batch of transitions as rows, (batch, columns); what is extra is left to be written."""
    rows = empty_rows(len(transitions.reward), spec, extra)
    view = fields(rows, spec, extra)
    for name, values in transitions._asdict().items():
        view[name] = np.reshape(values, view[name].shape)
    return rows


def pack_on_device(spec: EnvSpec, transitions: Transition) -> Array:
    """A batch of transitions as rows, (batch, columns), like `pack`, in compiled code."""
    kinds, word = record(spec), np.dtype(spec.observation.dtype)
    columns = []
    for name, values in transitions._asdict().items():
        part = values.astype(kinds[name].base).reshape(len(transitions.reward), -1)
        if kinds[name].base != word:
            part = jax.lax.bitcast_convert_type(part, word).reshape(len(part), -1)
        columns.append(part)
    return jnp.concatenate(columns, axis=1)


def without_marks(rows: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """The rows without what is extra in them, which comes last."""
    return np.ascontiguousarray(rows[..., : empty_rows(0, spec).shape[1]])


def unpack(spec: EnvSpec, rows: Array, extra: Sequence[str] = ()) -> dict[str, Array]:
    """The fields of rows (..., columns) on the device; discrete actions come back as int32."""
    found: dict[str, Array] = {}
    start, word = 0, np.dtype(spec.observation.dtype)
    kinds = record(spec, extra, _num_steps(spec, rows, extra))
    for name in kinds.names or ():
        kind = kinds[name]
        end = start + kind.itemsize // word.itemsize
        columns = rows[..., start:end]
        if kind.base != word:
            columns = columns.reshape(*columns.shape[:-1], -1, kind.base.itemsize)
            columns = jax.lax.bitcast_convert_type(columns, kind.base)
        found[name] = columns.reshape(*rows.shape[:-1], *kind.shape)
        start = end
    if spec.discrete:
        found["action"] = found["action"][..., 0].astype(jnp.int32)
    return found


def _num_steps(spec: EnvSpec, rows: Array, extra: Sequence[str]) -> int:
    """Steps that a row's return is over, by its width: each has a reward and a discount."""
    width = rows.shape[-1] * np.dtype(spec.observation.dtype).itemsize
    each = 2 * np.dtype(np.float32).itemsize
    return 1 + (width - record(spec, extra).itemsize) // each


def unpack_transitions(spec: EnvSpec, rows: Array) -> Transition:
    """Rows (..., columns) as transitions, on the device."""
    return Transition(**unpack(spec, rows))
