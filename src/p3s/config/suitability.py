"""Which algorithms can learn which environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from p3s.algorithms import ALGORITHMS
from p3s.config.environments import (
    DEFAULT_ALGORITHM,
    DISCRETE_ALGORITHM,
    default_algorithm,
    preset_of,
)
from p3s.envs import Adapter, EnvName, describe, offers_masks
from p3s.envs.goals import goal_problem
from p3s.errors import UserError

if TYPE_CHECKING:
    from p3s.config.run import Config


def check_environment(config: Config, env: Adapter) -> None:
    """Refuse an algorithm that cannot learn the environment's observations, actions or masks."""
    algorithm, name = config.algorithm, describe(env)
    if algorithm.normalize_observations and env.env_spec.observation.is_image:
        raise UserError(
            f"{name} has images, which networks scale themselves: "
            "leave normalize_observations off (--no-normalize-observations)"
        )
    if config.options.credit == "rrd" and env.env_spec.observation.has_images:
        raise UserError(
            f"{name} has images, and the reward network of credit rrd reads vectors only: "
            "choose --credit ircr"
        )
    if config.options.hindsight != "none" and (problem := goal_problem(env)) is not None:
        raise UserError(problem, "hindsight")
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


def suited_algorithm(scheme: str, name: EnvName | None, make: Callable[[], Adapter]) -> str:
    """The algorithm for an environment: by its name, or its actions where that tells too little."""
    if scheme == "rollout":
        return "ppo"
    by_name = default_algorithm(name)
    if name is not None and preset_of(name) is not None and not (name.kwargs or name.wrappers):
        return by_name
    try:
        example = make()
    except UserError:
        return by_name  # whoever makes it next says so
    kind = "discrete" if example.env_spec.discrete else "continuous"
    example.close()
    if ALGORITHMS[by_name].actions == kind:
        return by_name
    return DISCRETE_ALGORITHM if kind == "discrete" else DEFAULT_ALGORITHM


def algorithms_with_masks() -> list[str]:
    """Names of the algorithms that keep to masks of allowed actions."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.keeps_to_masks]
