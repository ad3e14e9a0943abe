"""Which algorithms can learn which environments."""

from __future__ import annotations

from collections.abc import Callable

from p3s.algorithms import ALGORITHMS
from p3s.config import Config
from p3s.environment_presets import DEFAULT_ALGORITHM, DISCRETE_ALGORITHM, preset_of
from p3s.envs import Adapter, EnvName, describe, offers_masks
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
            f"choose algorithm {' or '.join(fitting)}"
        )
    if not algorithm.keeps_to_masks and (env.env_spec.masked or offers_masks(env)):
        raise UserError(
            f"{name} masks its actions, which {algorithm.name} cannot keep to: "
            f"choose algorithm {' or '.join(algorithms_with_masks())}"
        )


def suited_algorithm(scheme: str, name: EnvName | None, make: Callable[[], Adapter]) -> str | None:
    """The algorithm for an environment by its actions; None where its name tells more."""
    known = preset_of(name)
    if scheme == "rollout" or (known is not None and name is not None and not name.kwargs):
        return None
    try:
        example = make()
    except UserError:
        return None  # whoever makes it next says so
    kind = "discrete" if example.env_spec.discrete else "continuous"
    example.close()
    if known is not None and ALGORITHMS[known.algorithm].actions == kind:
        return None
    return DISCRETE_ALGORITHM if kind == "discrete" else DEFAULT_ALGORITHM


def algorithms_with_masks() -> list[str]:
    """Names of the algorithms that keep to masks of allowed actions."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.keeps_to_masks]
