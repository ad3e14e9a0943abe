"""Watch a policy play: in a window, or as a film."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from p3s import keys
from p3s.cli.chosen_policy import ChosenPolicy, PlayedOn
from p3s.envs import Adapter, EnvName
from p3s.errors import UserError
from p3s.policies.film import FORMATS, film_maker, play_episode, write_film
from p3s.policies.policy import Policy


def play(policy: Policy, env: EnvName | None, episodes: int, seed: int, video: Path | None) -> None:
    """Play noiseless episodes and print their returns."""
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    if video is not None and video.suffix not in FORMATS:
        raise UserError(f"a film is .mp4 or .gif, not {video.name!r}")
    if video is None and sys.platform == "linux" and not _has_screen():
        raise UserError("there is no screen to show it on: give --video FILE")
    if video is not None:
        film_maker()
    made = _make(policy, env, "human" if video is None else "rgb_array")
    if made.env_spec != policy.spec:
        raise UserError(f"the policy is for {policy.spec}, the environment has {made.env_spec}")
    frames: list[Any] = []
    try:
        for episode in range(episodes):
            start = keys.integer(seed, "enjoy", episode)
            total, steps = play_episode(policy, made, start, frames if video is not None else None)
            print(f"episode {episode}: return {total:,.1f} in {steps} steps")
        rate = made.metadata.get("render_fps", 30)
    finally:
        made.close()
    if video is not None:
        write_film(video, frames, rate)
        print(f"wrote {video}")


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _make(policy: Policy, env: EnvName | None, render_mode: str) -> Adapter:
    try:
        return policy.make_env(render_mode, env)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"cannot render: {error}; --video FILE needs no screen") from error


@dataclass(frozen=True, kw_only=True)
class Options(PlayedOn, ChosenPolicy):
    """Watch a trained policy play, or film it."""

    video: Path | None = None
    """Write a film (.mp4 or .gif) instead of opening a window."""
    episodes: int = 1
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""


def run(options: Options) -> int:
    """Open a window, or write a film."""
    policy = options.load()
    env = options.environment(policy)
    play(policy, env, options.episodes, options.seed, options.video)
    return 0
