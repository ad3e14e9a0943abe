"""Observations scaled to mean 0 and standard deviation 1, by running statistics.

    at every step   count the observations that are acted on; act on (s - mean) / std, clipped at
                    ±10, with moments that include them
    in learning     minibatches from the replay are scaled by the present moments, on the device
    in a rollout    rows are stored as the policy saw them

All learners share the moments. They are part of a policy: its file holds them, and so does its
export. Differs from baselines' VecNormalize in: an observation is counted once, when it is acted
on, so the final one of an episode is not; the moments start from nothing instead of from a
standard normal of weight 1e-4.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from p3s.types import FLOAT_BYTES, Array, EnvSpec

LARGEST = 10.0
"""Normalized observations are clipped to ± this."""
EPSILON = 1e-8


class Scaling(NamedTuple):
    """What normalizes an observation, (observation,) each."""

    mean: Array
    scale: Array


def normalize(observation: Array, scaling: Scaling | None) -> Array:
    """(s - mean) * scale, clipped; the observation itself if there is no scaling."""
    if scaling is None:
        return observation
    if observation.dtype == np.uint8:
        return _normalize_packed(observation, scaling)
    return ((observation - scaling.mean) * scaling.scale).clip(-LARGEST, LARGEST)


def _normalize_packed(packed: Array, scaling: Scaling) -> Array:
    """The same for the numbers of packed observations, which come first; images stay."""
    end = FLOAT_BYTES * len(scaling.mean)
    words, rest = packed[..., :end], packed[..., end:]
    if isinstance(packed, np.ndarray):
        numbers = normalize(np.ascontiguousarray(words).view(np.float32), scaling)
        return np.concatenate([np.asarray(numbers, np.float32).view(np.uint8), rest], axis=-1)
    import jax  # not for workers that only play
    import jax.numpy as jnp

    words = words.reshape(*words.shape[:-1], -1, FLOAT_BYTES)
    numbers = normalize(jax.lax.bitcast_convert_type(words, jnp.float32), scaling)
    words = jax.lax.bitcast_convert_type(numbers, jnp.uint8).reshape(*packed.shape[:-1], end)
    return jnp.concatenate([words, rest], axis=-1)


def normalize_batches(batches: Any, scaling: Scaling | None) -> Any:
    """Transitions with both observations normalized; unchanged if there is no scaling."""
    if scaling is None:
        return batches
    return batches._replace(
        observation=normalize(batches.observation, scaling),
        next_observation=normalize(batches.next_observation, scaling),
    )


def identity_scaling(spec: EnvSpec) -> Scaling:
    """A scaling of the right shapes that only clips."""
    size = _num_scaled(spec)
    return Scaling(np.zeros(size, np.float32), np.ones(size, np.float32))


def _num_scaled(spec: EnvSpec) -> int:
    """Entries of what observations are scaled by; those of a vector's mask stay as they are."""
    return spec.features.num_numbers if spec.observation.images else spec.observation_size


class Normalizer(Protocol):
    """What a run's observations are scaled by."""

    scaling: Scaling | None = None
    """What observations are normalized by now."""

    def see(self, observations: np.ndarray) -> None:
        """Count observations that are about to be acted on, (count, ...)."""

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        ...

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""


class NoNormalizer(Normalizer):
    """Observations as they are."""

    def snapshot(self) -> dict[str, Any]:
        return {}


class RunningMoments(Normalizer):
    """Mean and variance of all observations so far, in double precision."""

    def __init__(self, spec: EnvSpec) -> None:
        self.count = 0
        size = _num_scaled(spec)
        self.mean, self.squares = np.zeros(size), np.zeros(size)
        """Sum of squared differences from the mean."""
        self.scaling = identity_scaling(spec)
        self._counted = spec.features.num_numbers
        """Numbers of an observation that are normalized: all but its mask."""

    def see(self, observations: np.ndarray) -> None:
        if observations.dtype == np.uint8:
            words = observations[..., : FLOAT_BYTES * len(self.mean)]
            observations = np.ascontiguousarray(words).view(np.float32)
        for observation in observations.astype(np.float64):
            self.count += 1
            ahead = observation - self.mean
            self.mean = self.mean + ahead / self.count
            self.squares = self.squares + ahead * (observation - self.mean)
        mean, squares = self.mean.copy(), self.squares.copy()
        mean[self._counted :], squares[self._counted :] = 0.0, self.count
        deviation = np.sqrt(squares / max(self.count, 1) + EPSILON)
        self.scaling = Scaling(mean.astype(np.float32), (1 / deviation).astype(np.float32))

    def snapshot(self) -> dict[str, Any]:
        return {"count": np.array(self.count), "mean": self.mean, "squares": self.squares}

    def resume(self, values: dict[str, Any]) -> None:
        self.count = int(values["count"])
        self.mean, self.squares = values["mean"].copy(), values["squares"].copy()
        self.see(np.empty((0, len(self.mean))))
