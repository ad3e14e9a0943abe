"""Which algorithms can learn which environments."""

from __future__ import annotations

from p3s.algorithms import ALGORITHMS
from p3s.config import Config
from p3s.envs import Adapter, describe, offers_masks
from p3s.errors import UserError


def check_environment(config: Config, env: Adapter) -> None:
    """Refuse an algorithm that cannot learn the environment's observations, actions or masks."""
    algorithm, name = config.algorithm, describe(env)
    if algorithm.normalize_observations and env.env_spec.observation.is_image:
        raise UserError(
            f"{name} has images, which networks scale themselves: "
            "leave normalize_observations off (--no-normalize-observations)"
        )
    kind = "discrete" if env.env_spec.discrete else "continuous"
    if algorithm.actions not in (kind, "both"):
        fitting = [
            name
            for name, other in ALGORITHMS.items()
            if other.actions in (kind, "both") and other.on_policy == algorithm.on_policy
        ]
        raise UserError(
            f"{name} has {kind} actions, which {algorithm.name} cannot learn: "
            f"choose --algorithm {' or '.join(fitting)}"
        )
    if not algorithm.keeps_to_masks and (env.env_spec.masked or offers_masks(env)):
        raise UserError(
            f"{name} masks its actions, which {algorithm.name} cannot keep to: "
            f"choose --algorithm {' or '.join(algorithms_with_masks())}"
        )


def algorithms_with_masks() -> list[str]:
    """Names of the algorithms that keep to masks of allowed actions."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.keeps_to_masks]
