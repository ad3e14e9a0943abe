"""Packages with environments: what their ids look like, and how Gymnasium comes to know them.

Gymnasium knows the environments of a package once its module is imported, which an id asks for:
'module:Env-v0'. Who writes the bare id is told so, and what to install.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec

import gymnasium

from p3s.envs.prefixes import not_a_prefix
from p3s.errors import UserError, unknown


@dataclass(frozen=True)
class Package:
    """A package that registers environments."""

    install: str
    """What pip calls it."""
    module: str
    """Whose import registers the environments."""
    ids: str
    """A pattern of their ids, from the beginning."""
    example: str
    """One that can be trained on."""
    wrapper: str | None = None
    """What makes its observations arrays, where they are none."""

    @property
    def is_installed(self) -> bool:
        """Whether the module can be found."""
        return find_spec(self.module) is not None


PACKAGES = (
    Package(
        "gymnasium-robotics",
        "gymnasium_robotics",
        "Fetch|HandReach|HandManipulate|PointMaze|AntMaze|AdroitHand|FrankaKitchen",
        "FetchReach-v4",
    ),
    Package(
        "minigrid",
        "minigrid",
        "MiniGrid-|BabyAI-",
        "MiniGrid-Empty-5x5-v0",
        "gymnasium.wrappers:FilterObservation(filter_keys=['image', 'direction'])",
    ),
    Package(
        "ale-py", "ale_py", r"ALE/|\w+(NoFrameskip|Deterministic)-v\d|\w+-ram-v", "ALE/Pong-v5"
    ),
    Package("shimmy[dm-control]", "shimmy", "dm_control/", "dm_control/cheetah-run-v0"),
    Package(
        "highway-env",
        "highway_env",
        "(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|u-turn|two-way)-",
        "highway-v0",
    ),
    Package(
        "panda-gym", "panda_gym", "Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)", "PandaReach-v3"
    ),
    Package("metaworld", "metaworld", "Meta-World/", "Meta-World/MT1"),
    Package("flappy-bird-gymnasium", "flappy_bird_gymnasium", "FlappyBird", "FlappyBird-v0"),
)


def package_of(env_id: str) -> Package | None:
    """The package that an id comes from, with its module or without."""
    module, _, bare = env_id.rpartition(":")
    for package in PACKAGES:
        if module == package.module or (not module and re.match(package.ids, bare)):
            return package
    return None


def unknown_environment(env_id: str) -> UserError:
    """The error for an id that Gymnasium does not know: where it comes from, or similar ids."""
    package = package_of(env_id)
    if package is None or ":" in env_id:
        return unknown("environment", env_id, gymnasium.registry)
    first = "" if package.is_installed else f" (pip install {quoted(package.install)})"
    return UserError(
        f"unknown environment {env_id!r}: it comes with {package.install}, so give "
        f"{package.module}:{env_id}{first}"
    )


def missing_module(env_id: str, error: Exception) -> UserError:
    """The error for an environment that needs something which is not installed."""
    for module, tool in (("mujoco", "MuJoCo"), ("Box2D", "Box2D")):
        if find_spec(module) is None and module.lower() in str(error).lower():
            return UserError(f"{env_id} needs {tool}: pip install 'p3s[{module.lower()}]'")
    package = package_of(env_id)
    if package is not None and not package.is_installed:
        return UserError(f"{env_id} needs {package.install}: pip install {quoted(package.install)}")
    first, colon, _ = env_id.partition(":")
    if colon and getattr(error, "name", None) == first:
        return UserError(f"environment {env_id!r}: {first} is no module, {not_a_prefix(env_id)}")
    return UserError(f"environment {env_id!r} needs a module: {error}")


def how_to_wrap(env_id: str) -> str:
    """What makes observations readable that hold more than numbers."""
    package = package_of(env_id)
    if package is None or package.wrapper is None:
        return "wrap it so that it gives numbers"
    return f'wrap it, for example with --wrappers "{package.wrapper}"'


def quoted(install: str) -> str:
    """What pip is told, as a shell takes it."""
    return f"'{install}'" if "[" in install else install
