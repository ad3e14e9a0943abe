"""Watch a policy play: in a window, or as a film."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from p3s import keys
from p3s.cli.chosen_policy import ChosenPolicy
from p3s.envs import Adapter
from p3s.errors import UserError
from p3s.evaluation import LONGEST_EPISODE
from p3s.policy import Policy


def play(policy: Policy, env: str | None, episodes: int, seed: int, video: Path | None) -> None:
    """Play noiseless episodes and print their returns."""
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    if video is not None and video.suffix not in (".mp4", ".gif"):
        raise UserError(f"a film is .mp4 or .gif, not {video.name!r}")
    if video is None and sys.platform == "linux" and not _has_screen():
        raise UserError("there is no screen to show it on: give --video FILE")
    imageio = _film_maker() if video is not None else None
    made = _make(policy, env, "human" if video is None else "rgb_array")
    if made.env_spec != policy.spec:
        raise UserError(f"the policy is for {policy.spec}, the environment has {made.env_spec}")
    frames: list[Any] = []
    try:
        for episode in range(episodes):
            start = keys.integer(seed, "enjoy", episode)
            total, steps = _play(policy, made, start, frames if video is not None else None)
            print(f"episode {episode}: return {total:,.1f} in {steps} steps")
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the environment raised {type(error).__name__}: {error}") from error
    rate = made.metadata.get("render_fps", 30)
    made.close()
    if video is not None:
        _write(imageio, video, frames, rate)
        print(f"wrote {video}")


def _play(policy: Policy, env: Adapter, seed: int, film: list[Any] | None) -> tuple[float, int]:
    """Return and length of an episode, whose frames are added to the film."""
    observation, _ = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        if steps == LONGEST_EPISODE:
            raise UserError(f"the episode has not ended after {LONGEST_EPISODE:,} steps")
        # The adapter takes actions in [-1, 1], so the policy's network is asked directly.
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, steps, over = total + reward, steps + 1, terminated or truncated
        if film is not None:
            film.append(env.render())
    return total, steps


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _make(policy: Policy, env: str | None, render_mode: str) -> Adapter:
    try:
        return policy.make_env(render_mode, env)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"cannot render: {error}; --video FILE needs no screen") from error


def _film_maker() -> Any:
    try:
        # imageio looks for its writer of films only when it writes one.
        importlib.import_module("imageio_ffmpeg")
        return importlib.import_module("imageio.v3")
    except ImportError as error:
        raise UserError("--video needs imageio: pip install 'p3s[video]'") from error


def _write(imageio: Any, path: Path, frames: list[Any], rate: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Python warns of any fork beside threads; the encoder is executed at once and needs none.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    if path.suffix == ".gif":
        imageio.imwrite(path, frames, duration=1000 / rate, loop=0)
    else:
        imageio.imwrite(path, frames, fps=rate, codec="libx264", macro_block_size=2)


@dataclass(frozen=True, kw_only=True)
class Options(ChosenPolicy):
    """Watch a trained policy play, or film it."""

    video: Path | None = None
    """Write a film (.mp4 or .gif) instead of opening a window."""
    episodes: int = 1
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    env: str | None = None
    """Another environment than the one it was trained on."""


def run(options: Options) -> int:
    """Open a window, or write a film."""
    play(options.load(), options.env, options.episodes, options.seed, options.video)
    return 0
