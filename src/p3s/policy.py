"""A trained policy as one file that is safe to open.

The file is safetensors: the parameters, and a description (algorithm, sizes, action range,
environment, run) as text. Loading it executes nothing and checks every name, shape and type.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.config import build, field_values
from p3s.errors import UserError
from p3s.experience.normalization import Scaling, identity_scaling, normalise
from p3s.runs.files import write_bytes
from p3s.trees import flatten_names, unflatten_names
from p3s.types import EnvSpec, Params

FORMAT = "p3s-policy-1"
SCALING = "normalisation"


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
        """What observations are normalised by, if the algorithm normalises them."""
        self._act = {
            explore: jax.jit(partial(algorithm.act, explore=explore)) for explore in (False, True)
        }
        self._num_calls = 0

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, None]:
        """Actions for one observation or a batch of them, as Stable-Baselines3 has it.

        Observations are flat; `state` and `episode_start` are there for the sake of callers
        that pass them.
        """
        observation = np.asarray(observation, np.float32)
        if observation.ndim not in (1, 2) or observation.shape[-1] != self.spec.observation_size:
            size = self.spec.observation_size
            raise UserError(
                f"an observation of shape {list(observation.shape)} does not fit: "
                f"this policy takes [{size}] or [batch, {size}]"
            )
        action = self.act(observation, deterministic)
        if self.spec.discrete:
            return action + self.about["action_start"], None
        low, high = (np.asarray(self.about[name]) for name in ("action_low", "action_high"))
        scaled = (low + high) / 2 + (high - low) / 2 * action
        own = np.clip(scaled, low, high).astype(np.float32)
        return own.reshape(observation.shape[:-1] + tuple(self.about["action_shape"])), None

    def act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """Actions as the network gives them, in [-1, 1]; `make_env`'s environments take these.

        Stochastic ones of an on-policy algorithm may lie outside; the environments clip them.
        """
        self._num_calls += 1
        key = jax.random.key(self._num_calls)
        seen = normalise(observation, self.scaling)
        return np.asarray(self._act[not deterministic](self.params, seen, key))

    def save(self, path: str | Path) -> None:
        """Write the policy as one file."""
        arrays = {name: np.asarray(leaf) for name, leaf in flatten_names(self.params).items()}
        if self.scaling is not None:
            arrays |= {f"{SCALING}/{name}": leaf for name, leaf in self.scaling._asdict().items()}
        description = {
            "format": FORMAT,
            "algorithm": self.algorithm.name,
            "fields": field_values(self.algorithm),
            "observation_size": self.spec.observation_size,
            "action_size": self.spec.action_size,
            "discrete": self.spec.discrete,
            **self.about,
        }
        metadata = {"p3s": json.dumps(description, sort_keys=True)}
        write_bytes(Path(path), save(arrays, metadata))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; nothing in it is executed."""
        path = Path(path)
        description, arrays = _read_policy_file(path)
        try:
            algorithm = build(
                ALGORITHMS, "algorithm", description.pop("algorithm"), description.pop("fields")
            )
            sizes = [description.pop(f) for f in ("observation_size", "action_size", "discrete")]
            spec = EnvSpec(*sizes)
            key = jax.random.key(0)
            template = jax.eval_shape(lambda: algorithm.policy_of(algorithm.init(key, spec)))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: its description does not fit ({error})") from error
        description.pop("format")
        scaling = None
        if algorithm.normalise_observations:
            names = [name for name in arrays if name.startswith(f"{SCALING}/")]
            found = {name.removeprefix(f"{SCALING}/"): arrays.pop(name) for name in names}
            scaling = unflatten_names(identity_scaling(spec), found, f"{path}: {SCALING}")
        params = unflatten_names(template, arrays, str(path))
        return cls(algorithm, params, spec, description, scaling)


def _read_policy_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise UserError(f"there is no policy file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(metadata["p3s"])
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or no policy file: {error}") from error
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} is not a p3s policy: it has no description") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{path} is not a policy of this version's format ({FORMAT})")
    return description, arrays
