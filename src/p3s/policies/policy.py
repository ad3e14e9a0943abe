"""A trained policy as one file that is safe to open.

The file is safetensors: the parameters, and a description (algorithm, shapes, action range,
environment, run) as text. Loading it executes nothing and checks every name, shape and type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.config.run import Config, build, field_values
from p3s.config.suitability import algorithms_with_masks
from p3s.envs import Adapter, Delay, EnvName, EnvSource, make_env, with_stacking
from p3s.envs.action_range import own_actions
from p3s.envs.flattening import NotThisSpace, flatten_observation, scales_pixels
from p3s.envs.masked_observations import join_mask
from p3s.envs.masks import checked_mask
from p3s.errors import UserError
from p3s.experience.normalization import Scaling, identity_scaling, normalize
from p3s.policies.file import (
    CHECKSUM,
    FIRST_FORMAT,
    FORMAT,
    check_about,
    check_layers,
    checksum,
    read_policy_file,
    read_spec,
)
from p3s.runs.files import write_bytes
from p3s.runs.trust import modules_in, refuse_modules
from p3s.trees import flatten_names, unflatten_names
from p3s.types import EnvSpec, Params

SCALING = "normalization"
FIRST_SCALING = "normalisation"


class Policy:
    """A policy that can be asked for actions in the environment's own range."""

    def __init__(
        self,
        algorithm: Algorithm,
        params: Params,
        spec: EnvSpec,
        about: dict[str, Any],
        scaling: Scaling | None = None,
    ) -> None:
        self.algorithm, self.params, self.spec, self.about = algorithm, params, spec, about
        self.scaling = scaling
        """What observations are normalized by, if the algorithm normalizes them."""
        self._num_calls = 0
        self.trusted = False
        """Whether `make_env` may import the module that the policy's environment is in."""

    @cached_property
    def _act(self) -> dict[bool, Any]:
        act = self.algorithm.act
        return {explore: jax.jit(partial(act, explore=explore)) for explore in (False, True)}

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_act"}
        return {**state, "params": jax.device_get(self.params)}

    def __repr__(self) -> str:
        env, run = self.about.get("environment"), self.about.get("run")
        where = "" if env is None else f" for {env['id']}"
        origin = f", learner {run['learner']} at step {run['step']:,}" if run else ""
        return f"<Policy {self.algorithm.name}{where}: {self.spec}{origin}>"

    @property
    def num_stacked_observations(self) -> int:
        """How many of the latest observations it takes at once, the newest first."""
        return self.about.get("num_stacked_observations", 1)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, None]:
        """Actions for one observation or a batch of them, as Stable-Baselines3 has it.

        Observations are the environment's own, dicts and tuples too, or arrays as this policy's
        `make_env` gives them: if `num_stacked_observations` is 2, the latest and the one before it,
        side by side. `state` and `episode_start` are there for callers that pass them.
        action_masks: which actions are allowed, (actions,) or (batch, actions), where observations
        do not end with their masks; by default, all.
        """
        given = self._flat(observation)
        if self.spec.observation.has_images and given.dtype != np.uint8:
            raise UserError(f"this policy takes images as uint8 pixels, not {given.dtype}")
        observation = np.asarray(given, self.spec.observation.dtype)
        shape = self.spec.features.shape
        whole = self.spec.observation.shape
        if self.spec.masked and action_masks is None and observation.shape[-1:] == whole[-1:]:
            shape = whole
        batch = observation.shape[: observation.ndim - len(shape)]
        if observation.shape != (*batch, *shape) or len(batch) > 1:
            one = ", ".join(map(str, shape))
            raise UserError(
                f"an observation of shape {list(observation.shape)} does not fit: "
                f"this policy takes [{one}] or [batch, {one}]{self._side_by_side}"
            )
        mask = None if shape == whole and action_masks is None else self._mask(action_masks, batch)
        action = self.act(observation, deterministic, mask)
        return own_actions(self.about, self.spec, action), None

    def _flat(self, observation: Any) -> np.ndarray:
        """Observations of a structured space as vectors; all others as they are."""
        space = self.about.get("observation_space")
        structured = isinstance(observation, dict | tuple)
        if space is not None and self.num_stacked_observations == 1:
            with suppress(NotThisSpace):
                return flatten_observation(space, observation)
        if structured:
            parts = "its parts do not fit"
            if images := self.spec.observation.images:
                shapes = (f"[{', '.join(map(str, shape))}]" for shape in images)
                parts += f", of which images are uint8 of {' and '.join(shapes)}"
            raise UserError(
                f"this policy cannot take this {type(observation).__name__}: "
                f"{parts if space is not None else 'its observations are arrays'}"
            )
        array, shape = np.asarray(observation), self.spec.observation.shape
        gray = self.spec.observation.is_image and shape[-1] == 1
        flat = gray and array.ndim in (2, 3) and array.shape[-2:] == shape[:2]
        return array[..., None] if flat else array

    def _mask(self, given: Any, batch: tuple[int, ...]) -> np.ndarray:
        """Masks for a batch of observations; none given allow everything."""
        size = self.spec.action_size
        if not self.algorithm.keeps_to_masks:
            able = " or ".join(algorithms_with_masks())
            raise UserError(f"{self.algorithm.name} cannot keep to action_masks: {able} can")
        try:
            mask = np.ones(size, bool) if given is None else checked_mask(given, size)
            return np.broadcast_to(mask, (*batch, size))
        except ValueError as error:
            raise UserError(f"action_masks do not fit: {error}") from error

    @property
    def _side_by_side(self) -> str:
        count = self.num_stacked_observations
        return f", the latest {count} observations side by side, newest first" * (count > 1)

    def act(
        self, observation: np.ndarray, deterministic: bool = True, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions as the network gives them, in [-1, 1]; `make_env`'s environments take these.

        mask: which actions are allowed, (batch..., actions), if the observation does not say it.
        Stochastic actions of an on-policy algorithm may lie outside; the environments clip them.
        """
        self._num_calls += 1
        key = jax.random.key(self._num_calls)
        axes = len(self.spec.observation.shape)
        if mask is not None and self.spec.masked:
            observation, mask = join_mask(observation, mask, axes), None
        seen = normalize(observation, self.scaling)
        if mask is not None:
            seen = join_mask(seen, mask, axes)
        return np.asarray(self._act[not deterministic](self.params, seen, key))

    def save(self, path: str | Path) -> None:
        """Write the policy as one file."""
        write_bytes(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The policy's file."""
        arrays = {name: np.asarray(leaf) for name, leaf in flatten_names(self.params).items()}
        if self.scaling is not None:
            arrays |= {f"{SCALING}/{name}": leaf for name, leaf in self.scaling._asdict().items()}
        description = {
            "format": FORMAT,
            "algorithm": self.algorithm.name,
            "fields": field_values(self.algorithm),
            "observation_shape": self.spec.observation.shape,
            "observation_dtype": self.spec.observation.dtype,
            **({"observation_images": images} if (images := self.spec.observation.images) else {}),
            "action_size": self.spec.action_size,
            "discrete": self.spec.discrete,
            **({"masked": True} if self.spec.masked else {}),
            **self.about,
        }
        description[CHECKSUM] = checksum(description, arrays)
        return save(arrays, {"p3s": json.dumps(description, sort_keys=True)})

    def make_env(
        self,
        render_mode: str | None = None,
        env: EnvSource | EnvName | None = None,
        delay: Delay | None = None,
    ) -> Adapter:
        """A copy of the environment that the policy was trained on, or of another one."""
        own = self.about.get("environment")
        if env is None and own is not None:
            self.check_modules()
            env = EnvName.from_json(own)
        if env is None:
            raise UserError("the policy does not name its environment: give one (--env, or env=)")
        make = partial(make_env, env, delay, render_mode)
        # A policy from before pixels were scaled has them in its description as they were.
        space, scale_images = self.about.get("observation_space"), self.algorithm.scale_images
        keeps_images = bool(self.spec.observation.images)
        if space is not None and not keeps_images:
            scale_images = scales_pixels(space)
        about = self.num_stacked_observations, self.spec.masked, scale_images, keeps_images
        return with_stacking(make, *about)()

    def check_modules(self) -> None:
        """Refuse to import the modules of the environment that a stranger's file names."""
        if not self.trusted:
            refuse_modules(modules_in(self.about.get("environment")), "the policy's environment")

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; nothing in it is executed."""
        path = Path(path)
        description, arrays = read_policy_file(path)
        try:
            first = description.pop("format") == FIRST_FORMAT
            if first:
                description["observation_shape"] = [description.pop("observation_size")]
                description["observation_dtype"] = "float32"
            fields = description.pop("fields")
            check_layers(fields, sum(array.size for array in arrays.values()))
            algorithm = build(ALGORITHMS, "algorithm", description.pop("algorithm"), fields)
            spec = read_spec(description)
            if spec.observation.images and not algorithm.reads_parts:
                raise ValueError(f"{algorithm.name} reads no packed observations")
            key = jax.random.key(0)
            template = jax.eval_shape(lambda: algorithm.policy_of(algorithm.init(key, spec)))
            check_about(description, spec)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UserError(f"{path} is damaged: its description does not fit ({error})") from error
        prefix = f"{FIRST_SCALING if first else SCALING}/"
        names = [name for name in arrays if name.startswith(prefix)]
        found = {name.removeprefix(prefix): arrays.pop(name) for name in names}
        if first:
            arrays = _renamed(arrays, template)
        params = unflatten_names(template, arrays, str(path))
        scaling = None
        if algorithm.normalize_observations:
            scaling = unflatten_names(identity_scaling(spec), found, f"{path}: {SCALING}")
        return cls(algorithm, params, spec, description, scaling)


def policy_maker(
    config: Config, spec: EnvSpec, about_spaces: dict[str, Any], step: int, scaling: Scaling | None
) -> Callable[[int, Params], Policy]:
    """Makes policies of a run at this step, from a learner's place and its parameters."""
    env, algorithm = config.env, config.algorithm

    def make(learner: int, params: Params) -> Policy:
        about = {
            **about_spaces,
            "num_stacked_observations": algorithm.num_stacked_observations,
            "environment": None if env is None else env.to_json(),
            "run": {
                "scheme": config.scheme.name,
                "seed": config.options.seed,
                "step": step,
                "learner": learner,
            },
        }
        return Policy(algorithm, params, spec, about, scaling)

    return make


def _renamed(arrays: dict[str, np.ndarray], template: Params) -> dict[str, np.ndarray]:
    """Arrays of a file of the first format by the names of this one.

    The names have gained components: `params` for a model, `value` for what is carried.
    """

    def core(name: str) -> str:
        return "/".join(word for word in name.split("/") if word not in ("params", "value"))

    known = {core(name): name for name in flatten_names(template)}
    return {known.get(core(name), name): array for name, array in arrays.items()}
