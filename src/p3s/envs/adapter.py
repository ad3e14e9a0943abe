"""Any Gymnasium environment as the learners see it: arrays in, actions in [-1, 1] out.

Observations are flat float32 vectors, or uint8 images (height, width, channels), which stay uint8
on their way through replay and checkpoints to the network. Images with numbers beside them are
packed as bytes for an algorithm that reads them so. Every other space is flattened, pixels in it
divided by 255.

An algorithm may want to see the latest few observations at once
(`Algorithm.num_stacked_observations`). They are put side by side, the newest first, images by their
channels. A mask of allowed actions is appended. Everything after the adapter just sees a longer
observation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from p3s.envs.flattening import (
    PIXEL_SCALE,
    as_bytes,
    describe_space,
    flat_size,
    flatten_observation,
    has_image_parts,
    image_shape,
    images_in,
    is_image,
    pixel_ranges,
    unread_part,
)
from p3s.envs.masked_observations import join_mask, mask_columns
from p3s.envs.masks import offers_masks, read_mask, refuse_mask
from p3s.envs.packages import how_to_wrap
from p3s.errors import UserError
from p3s.types import EnvSpec, ObservationSpec


class Adapter(gymnasium.Wrapper, RecordConstructorArgs):
    """Observations as float32 vectors or uint8 images, actions in [-1, 1] or an index.

    num_stacked_observations: how many of the latest observations are shown, the newest first;
    before the first one of an episode there is that one again.
    masked: whether masks of the allowed actions are appended.
    scale_images: whether pixels in what is flattened are divided by 255.
    keeps_images: whether images in a Dict or Tuple are packed as they are, see `ObservationSpec`.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        num_stacked_observations: int = 1,
        masked: bool = False,
        scale_images: bool = True,
        keeps_images: bool = False,
    ) -> None:
        # Gymnasium can then make the same again from `spec`, as its checker does.
        RecordConstructorArgs.__init__(
            self,
            num_stacked_observations=num_stacked_observations,
            masked=masked,
            scale_images=scale_images,
            keeps_images=keeps_images,
        )
        gymnasium.Wrapper.__init__(self, env)
        own = env.observation_space
        if (unread := unread_part(own)) is not None:
            raise UserError(
                f"observations of {describe(env)} hold {unread}, which no network here reads: "
                f"{how_to_wrap(describe(env))}"
            )
        self._own_observation_space, self._own_action_space = own, env.action_space
        self._plain = isinstance(own, spaces.Box) and len(own.shape) == 1
        about = describe_space(own, scale_images, keeps_images and has_image_parts(own))
        self._packed = about if about is not None and images_in(about) else None
        """The description of what is packed."""
        self._spec = packed_spec(self._packed) if self._packed else observation_spec(own)
        flattened = not self._plain and not self._spec.has_images
        self._about_observation = about if flattened or self._packed else None
        self._pixel_ranges = pixel_ranges(own) if flattened and scale_images else []
        self._masked = masked
        self.action_mask: np.ndarray | None = None
        """Which actions are allowed now, if the environment masks them."""
        *others, last = self._spec.shape
        last *= num_stacked_observations
        if masked:
            if not isinstance(env.action_space, spaces.Discrete):
                raise UserError(f"{describe(env)} has no Discrete actions, which masks belong to")
            last += mask_columns(self._spec.shape, int(env.action_space.n))
        self._shown = replace(self._spec, shape=(*others, last))
        self._num_stacked_observations = num_stacked_observations
        self._latest: list[np.ndarray] = []
        """What is shown with the next observation."""
        self._dtype = np.dtype(self._spec.dtype)
        low, high = (0, 255) if self._spec.has_images else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, self._shown.shape, self._dtype.type)
        self._box = env.action_space if isinstance(env.action_space, spaces.Box) else None
        if self._box is not None:
            self.action_low, self.action_high = _finite_bounds(env, self._box)
            self._center = (self.action_high + self.action_low) / 2
            self._half = (self.action_high - self.action_low) / 2
            self._whole = np.issubdtype(self._box.dtype, np.integer)
            self._flat_actions = self._box.shape == self._center.shape
            self.action_space = spaces.Box(-1.0, 1.0, self._center.shape, np.float32)
        elif not isinstance(env.action_space, spaces.Discrete):
            raise UserError(
                f"actions of {describe(env)} are {type(env.action_space).__name__}: "
                "only Box and Discrete actions can be learned"
            )
        else:
            self.action_space = spaces.Discrete(int(env.action_space.n))

    @property
    def env_spec(self) -> EnvSpec:
        """Shapes for the networks."""
        if self._box is not None:
            return EnvSpec(self._shown, int(np.prod(self._box.shape)))
        assert isinstance(self.action_space, spaces.Discrete)
        return EnvSpec(self._shown, int(self.action_space.n), discrete=True, masked=self._masked)

    @property
    def shows_more(self) -> bool:
        """Whether learners see more than the latest observation: earlier ones, or masks."""
        return self._masked or self._num_stacked_observations > 1

    def about_spaces(self) -> dict[str, Any]:
        """What a policy file says of the environment's own actions and observations."""
        about: dict[str, Any] = {}
        if not self._plain and not self._spec.is_image:
            about["observation_space"] = self._about_observation
        if self._box is None:
            assert isinstance(self.env.action_space, spaces.Discrete)
            return {**about, "action_start": int(self.env.action_space.start)}
        if self._whole:
            about["action_dtype"] = str(self._box.dtype)
        return {
            **about,
            "action_low": self.action_low.tolist(),
            "action_high": self.action_high.tolist(),
            "action_shape": list(self._box.shape),
        }

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._check_spaces()
        if not isinstance(info, dict):
            raise ValueError("reset must return an observation and a dict")
        if self._box is not None:
            refuse_mask(self.env, info, describe(self.env))
        first = self._as_array(observation)
        self._latest = [first.copy()] * (self._num_stacked_observations - 1)
        return self._with_mask(self._with_latest(first), info), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(self._own_action(action))
        ended = bool(terminated or truncated)
        if ended and "final_obs" in info:
            # It has begun the next episode by itself (Gymnasium's autoreset in the same step).
            observation = info["final_obs"]
        seen = self._with_latest(self._as_array(observation))
        seen = self._with_mask(seen, info, ended, bool(terminated))
        if isinstance(reward, str | bytes | complex):
            raise TypeError(f"the reward is {reward!r}, not a number")
        return seen, float(reward), bool(terminated), bool(truncated), info

    def _check_spaces(self) -> None:
        """Refuse an environment whose spaces are no longer those that it was made with."""
        now = self.env.observation_space, self.env.action_space
        for space, own in zip(
            now, (self._own_observation_space, self._own_action_space), strict=True
        ):
            if space is not own and space != own:
                raise ValueError(f"the environment changed its space from {own} to {space}")

    def _with_latest(self, observation: np.ndarray) -> np.ndarray:
        """The observation and those before it, as many as are shown."""
        if not self._latest:
            return observation
        # A copy, since an environment may write its next observation to the same memory.
        shown = [observation.copy(), *self._latest]
        self._latest = shown[:-1]
        return np.concatenate(shown, axis=-1)

    def _with_mask(
        self,
        observation: np.ndarray,
        info: dict[str, Any],
        ended: bool = False,
        terminated: bool = False,
    ) -> np.ndarray:
        """The observation and the mask that belongs to it, if there are masks."""
        if not self._masked:
            return observation
        assert isinstance(self.action_space, spaces.Discrete)
        mask = read_mask(self.env, info, int(self.action_space.n), ended, terminated)
        self.action_mask = mask
        return join_mask(observation, mask, observation.ndim)

    def sample_action(self, space: gymnasium.Space[Any]) -> Any:
        """A random action that is allowed; space: the action space, or a copy with its own seed."""
        if self.action_mask is None:
            return space.sample()
        return space.sample(self.action_mask.astype(np.int8))

    def _as_array(self, observation: Any) -> np.ndarray:
        if self._packed:
            return flatten_observation(self._packed, observation, batches=False)
        if self._spec.is_image:
            array = as_bytes(observation)
            array = array[..., None] if array.ndim == 2 else array
        else:
            if not self._plain:
                observation = spaces.flatten(self._own_observation_space, observation)
            array = np.asarray(observation)
            if array.dtype.kind in "cSUmM":
                raise ValueError(f"an observation has values of type {array.dtype}, not numbers")
            array = array.astype(np.float32, copy=False)
        if array.shape != self._spec.shape:
            expected = self._spec.shape
            raise ValueError(f"an observation has shape {array.shape}, its space {expected}")
        for start, stop in self._pixel_ranges:
            array[start:stop] *= PIXEL_SCALE
        return array

    def _own_action(self, action: Any) -> Any:
        if self._box is None:
            assert isinstance(self.env.action_space, spaces.Discrete)
            return int(action) + int(self.env.action_space.start)
        scaled = np.asarray(action, np.float64).reshape(-1) * self._half
        scaled += self._center
        # np.clip does the same and takes longer.
        np.maximum(scaled, self.action_low, out=scaled)
        np.minimum(scaled, self.action_high, out=scaled)
        if self._whole:
            np.rint(scaled, out=scaled)
        own = scaled.astype(self._box.dtype)
        return own if self._flat_actions else own.reshape(self._box.shape)


def with_stacking(
    make: Callable[[], Adapter],
    num_stacked_observations: int,
    masked: bool = False,
    scale_images: bool = True,
    keeps_images: bool = False,
) -> Callable[[], Adapter]:
    """A function that makes the same environments, each showing its latest observations at once.

    masked: and the masks of their actions. scale_images, keeps_images: as `Adapter` has them.
    """
    if num_stacked_observations == 1 and not masked and scale_images and not keeps_images:
        return make
    return partial(_remake, make, num_stacked_observations, masked, scale_images, keeps_images)


def _remake(make: Callable[[], Adapter], *about: Any) -> Adapter:
    return Adapter(make().env, *about)


def with_masks(
    make: Callable[[], Adapter],
    num_stacked_observations: int = 1,
    scale_images: bool = True,
    keeps_images: bool = False,
) -> Callable[[], Adapter]:
    """`with_stacking`, with masks if the environments have them, and images if they are parts."""
    example = make()
    masked = offers_masks(example)
    keeps_images &= num_stacked_observations == 1 and has_image_parts(example.env.observation_space)
    example.close()
    return with_stacking(make, num_stacked_observations, masked, scale_images, keeps_images)


def with_spec_check(make: Callable[[], Adapter], spec: EnvSpec) -> Callable[[], Adapter]:
    """A function that makes the same environments, and refuses one with other shapes."""
    return partial(_make_expected, make, spec)


def _make_expected(make: Callable[[], Adapter], spec: EnvSpec) -> Adapter:
    made = make()
    if made.env_spec != spec:
        made.close()
        raise UserError(f"a new copy of the environment has {made.env_spec}, the first had {spec}")
    return made


def observation_spec(space: gymnasium.Space[Any]) -> ObservationSpec:
    """A uint8 Box of two or three axes is an image; every other space becomes a flat vector."""
    if is_image(space):
        assert space.shape is not None
        return ObservationSpec(image_shape(space.shape), "uint8")
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    return ObservationSpec(flat.shape)


def packed_spec(description: Any) -> ObservationSpec:
    """What becomes of a space with images in it."""
    return ObservationSpec.packed(flat_size(description), tuple(images_in(description).values()))


def _finite_bounds(env: gymnasium.Env, box: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (box.low, box.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"actions of {describe(env)} have no finite bounds: wrap it so that its action space "
            "is a Box with finite low and high"
        )
    return low, high


def describe(env: gymnasium.Env) -> str:
    """A short name for messages."""
    if env.spec is not None:
        return env.spec.id
    return getattr(env.unwrapped, "known_as", type(env.unwrapped).__name__)
