"""Every shape that modules share, with its axis order stated once.

Axes, outermost first: learner, batch, feature. A singular name (`learner`) is one, a plural
(`learners`) is stacked along a leading learner axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple

Array = Any
"""A jax.Array in compiled code, an np.ndarray on the host."""
Params = Any
"""A pytree of arrays; `trees.Carried` marks those that are not trained."""
Shape = tuple[int, ...]
ImageAxes = Literal["auto", "first", "last"]
"""Where the channels of an image are; auto: where its shape suggests."""
Recorded = dict[str, Any]
"""Metrics of an update under the names that metrics.jsonl has for them."""


class Metrics(NamedTuple):
    """What a step of an algorithm tells of itself, each a mean over the minibatch.

    Others rely on what has a field; everything else has a name. What is None is not recorded.
    """

    loss: Array | None = None
    """What was minimized; recorded as `value_loss` or `policy_loss`."""
    target_mean: Array | None = None
    """What the value functions are moved towards; `learning/health.py` sees them explode by it."""
    guide_distance: Array | None = None
    """Distance to the guide; `p3s` measures its own for its pull (`distance_between`)."""
    more: dict[str, Array] | None = None
    """Further ones by the names that they are recorded under."""


FLOAT_BYTES = 4


@dataclass(frozen=True)
class ObservationSpec:
    """Shape and dtype of one observation: a flat float32 vector, a uint8 image, or both, packed.

    A packed observation is a vector of bytes: those of float32 numbers first, then the pixels of
    one image after the other.
    """

    shape: Shape
    dtype: str = "float32"
    images: tuple[Shape, ...] = ()
    """Shapes of the images in a packed observation."""

    @classmethod
    def packed(cls, num_numbers: int, images: tuple[Shape, ...]) -> ObservationSpec:
        """Observations of so many numbers and these images."""
        return cls((FLOAT_BYTES * num_numbers + sum(map(prod, images)),), "uint8", images)

    @property
    def size(self) -> int:
        """Entries of the array that one observation is."""
        return prod(self.shape)

    @property
    def num_numbers(self) -> int:
        """Numbers in one observation without a mask; in a packed one those beside the images."""
        return (
            self.size
            if not self.images
            else (self.size - sum(map(prod, self.images))) // FLOAT_BYTES
        )

    @property
    def is_image(self) -> bool:
        """Whether it is one image, whose pixels networks scale themselves."""
        return self.dtype == "uint8" and not self.images

    @property
    def has_images(self) -> bool:
        """Whether it is an image, or holds some."""
        return self.dtype == "uint8"

    def __str__(self) -> str:
        shapes = ["×".join(map(str, shape)) for shape in self.images or (self.shape,)]
        if not self.images:
            return f"{self.dtype} observations of {shapes[0]}"
        numbers = f" and {self.num_numbers} numbers" if self.num_numbers else ""
        return f"observations of {', '.join(shapes)} pixels{numbers}"


def channels_first(shape: Shape, axes: ImageAxes = "auto") -> bool:
    """Whether the channels of an image come first.

    Two equal axes are taken for height and width; otherwise the shorter end is the channels.
    """
    first, middle, last = shape
    if axes != "auto":
        return axes == "first" and last != 1  # a gray image gets its channel at the end
    if (first == middle) != (middle == last):
        return middle == last
    return first < last


@dataclass(frozen=True)
class EnvSpec:
    """What networks and replay need to know of an environment.

    `action_size` is the number of action dimensions, each in [-1, 1], or, if `discrete`, the
    number of actions to choose from.
    """

    observation: ObservationSpec
    action_size: int
    discrete: bool = False
    masked: bool = False
    """Whether observations end with a mask of the allowed actions."""

    @classmethod
    def flat(cls, observation_size: int, action_size: int, discrete: bool = False) -> EnvSpec:
        """An environment with flat float32 observations of this size."""
        return cls(ObservationSpec((observation_size,)), action_size, discrete)

    @property
    def observation_size(self) -> int:
        """Entries of the array that one observation is."""
        return self.observation.size

    @property
    def features(self) -> ObservationSpec:
        """What networks see: an observation without its mask."""
        if not self.masked:
            return self.observation
        *others, last = self.observation.shape
        columns = -(-self.action_size // prod(others))
        return replace(self.observation, shape=(*others, last - columns))

    def __str__(self) -> str:
        kind = "masked actions" if self.masked else "actions"
        kind = kind if self.discrete else "action dimensions"
        return f"{self.features} and {self.action_size} {kind}"


class Transition(NamedTuple):
    """One step of experience; `discount` is 1 - terminated, so that a truncation bootstraps."""

    observation: Array
    action: Array
    reward: Array
    discount: Array
    next_observation: Array


class Rollout(NamedTuple):
    """Steps of one environment copy in order, (rows, ...)."""

    steps: Transition
    ended: Array
    """1 where an episode ended, by termination or truncation."""
    present: Array
    """1 for a step, 0 for a row that only pads the array; such rows come last."""


class Episode(NamedTuple):
    """A finished training episode."""

    copy: int
    """The index of the environment copy that played it."""
    total: float
    length: int


class Learner(NamedTuple):
    """One learner. Schemes copy, reset and mix its parts by these names."""

    policy: Params
    value: Params
    targets: dict[str, Params]
    """Networks that follow the online ones: "policy" and "value", where the algorithm has them."""
    optimizers: dict[str, Params]
    """States of the optimizers: "policy", "value", ...; all zeros at the start."""
    extra: dict[str, Params]
    """What else the algorithm keeps."""


class Guide(NamedTuple):
    """The policy that pulls and how hard (1{i != b} beta in eq. 1); weight 0: no pull."""

    policy: Params
    weight: Array
    term: Callable[[Params], Array] | None = None
    """A further term of the policy's loss, which has no weight but its own."""
