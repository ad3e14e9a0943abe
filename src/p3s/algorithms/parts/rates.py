"""Step sizes that change over a run: Adam's rate as a function of the number of its steps.

rate = start * shape(progress, end / start),   progress = min(step / steps, 1)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from p3s.fields.schedules import parse_schedule


def line(done: jax.Array, left: Any) -> jax.Array:
    """From 1 to `left` in a line."""
    return 1.0 - done * (1.0 - left)


def wave(done: jax.Array, left: Any) -> jax.Array:
    """From 1 to `left` along half a wave of a cosine."""
    return left + (1.0 - left) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))


SHAPES = {"linear": line, "cosine": wave}


def moving(shape: str, start: Any, left: float, steps: int | None) -> optax.ScalarOrSchedule:
    """A rate that goes from `start` to the share `left` of it; without steps it stays there."""
    if steps is None:
        return start

    def rate(count: ArrayLike) -> jax.Array:
        done = jnp.minimum(jnp.asarray(count) / steps, 1.0)
        return start * SHAPES[shape](done, left)

    return rate


def scheduled(rate: float | str, steps: int | None) -> optax.ScalarOrSchedule:
    """A rate as a function of steps, also if it is a number; without steps as it is at the start.

    So the optimizers of an algorithm have one form, whichever of its rates move.
    """
    if not isinstance(rate, str):
        return rate if steps is None else lambda count: jnp.asarray(rate, jnp.float32)
    written = parse_schedule(rate)
    if written is None:
        raise ValueError(f"{rate!r} is no schedule")
    start, values = written.values[0], written.values
    if written.shape in SHAPES:
        return moving(written.shape, start, values[-1] / start, steps)
    if steps is None:
        return start
    places = jnp.linspace(0.0, 1.0, len(values))

    def through(count: ArrayLike) -> jax.Array:
        done = jnp.minimum(jnp.asarray(count) / steps, 1.0)
        return jnp.interp(done, places, jnp.asarray(values, jnp.float32))

    return through
