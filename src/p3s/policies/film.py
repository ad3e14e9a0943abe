"""Films of a policy that plays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p3s import keys
from p3s.envs import Adapter
from p3s.envs.episodes import play_episodes
from p3s.machine import needed
from p3s.policies.policy import Policy

FORMATS = (".mp4", ".gif")


def film_maker() -> Any:
    """The library that writes films, an extra."""
    # imageio looks for its writer of films only when it writes one.
    return needed("a film needs imageio", "video", "imageio_ffmpeg", "imageio.v3")


def film(policy: Policy, path: Path, make: Callable[[], Adapter], seed: int = 0) -> None:
    """Write one noiseless episode as a film; `make` makes an environment that renders frames."""
    frames: list[Any] = []
    env = make()
    try:
        play_episode(policy, env, keys.integer(seed, "enjoy", 0), frames)
        rate = env.metadata.get("render_fps", 30)
    finally:
        env.close()
    write_film(path, frames, rate)


def play_episode(
    policy: Policy, env: Adapter, seed: int, frames: list[Any] | None
) -> tuple[float, int]:
    """Return and length of an episode, whose frames are added to the list."""

    def watch(env: Adapter) -> None:
        if frames is not None:
            frames.append(env.render())

    def act(observations: list[Any], infos: Any) -> list[Any]:
        # The adapter takes actions in [-1, 1], so the policy's network is asked directly.
        return [policy.act(observations[0])]

    (total,), (steps,) = play_episodes([env], [seed], act, watch)
    return float(total), int(steps)


def write_film(path: Path, frames: list[Any], rate: int) -> None:
    """Write frames as .mp4 or .gif."""
    imageio = film_maker()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Python warns of a fork among threads; the encoder is executed at once and needs none.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    if path.suffix == ".gif":
        imageio.imwrite(path, frames, duration=1000 / rate, loop=0)
    else:
        imageio.imwrite(path, frames, fps=rate, codec="libx264", macro_block_size=2)
