"""Measure what an idle and a random policy earn on the environments of a study.

    idle       zero in the environment's own action space, clipped into it; none for Discrete
    random     uniform over the action space

Each plays the same 10 episodes. An environment is played in a process of its own, on stdin the
configuration of one of its runs: if it raises, dies or hangs, the study continues, and the runs
themselves report why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from p3s import keys
from p3s.config.run import Config
from p3s.envs import EnvName, make_env
from p3s.envs.episodes import play_episodes
from p3s.envs.masks import sample_allowed
from p3s.envs.mujoco_setup import warn_once
from p3s.errors import UserError
from p3s.plugins.loading import import_module
from p3s.report.references import Reference, earnings
from p3s.study.cells import Cell
from p3s.study.folder import StudyFolder

EPISODES = 10
MOST_SECONDS = 600.0
"""When to give an environment up."""


def measure(name: EnvName) -> Reference:
    """Play both policies; their draws depend on the episode alone."""
    # Without the adapter: actions are in the environment's own range.
    env = make_env(name).env
    try:
        returns: dict[str, list[float]] = {}
        if isinstance(env.action_space, spaces.Box):
            idle = idle_action(env.action_space)
            returns["idle"] = [_play(env, episode, lambda _: idle) for episode in range(EPISODES)]
        returns["random"] = []
        for episode in range(EPISODES):
            env.action_space.seed(keys.integer(0, "reference_actions", episode))
            returns["random"].append(_play(env, episode, partial(sample_allowed, env)))
    finally:
        env.close()
    if not np.isfinite([*returns.values()]).all():
        raise UserError("a return is not finite")
    return Reference(name.to_json(), returns)


def idle_action(space: spaces.Box) -> np.ndarray:
    """Zero, clipped into the space."""
    return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)


def _play(env: gymnasium.Env, episode: int, act: Callable[[dict[str, Any]], Any]) -> float:
    """The return of one episode; act: an action, from `info`."""
    seed = keys.integer(0, "reference_episode", episode)
    (total,), _ = play_episodes([env], [seed], lambda _, infos: [act(infos[0])])
    return float(total)


def measure_apart(config: Config) -> Reference:
    """Measure a run's environment in another process; UserError if that fails."""
    command = [sys.executable, "-m", "p3s.study.references"]
    order = json.dumps(config.to_json())
    try:
        done = subprocess.run(
            command, input=order, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"not done after {MOST_SECONDS:.0f} seconds") from error
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(why[-1])
    try:
        return Reference(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, TypeError, IndexError) as error:
        raise UserError(f"its process printed no returns: {error}") from error


def complete_references(folder: StudyFolder, cells: list[Cell], say: Callable[[str], None]) -> None:
    """Measure the environments of these cells that the folder has no references for."""
    known = folder.references()
    for label, cell in {cell.env.label: cell for cell in cells}.items():
        # The file may have given the label to another environment meanwhile.
        if label in known and known[label].environment == _as_read(cell.env.name):
            continue
        try:
            reference = measure_apart(cell.config)
        except UserError as error:
            say(f"{label}: cannot measure an idle and a random policy: {error}")
            continue
        folder.add_reference(label, reference)
        say(f"{label}: {earnings(reference)}")


def _as_read(name: EnvName) -> dict[str, Any]:
    return json.loads(json.dumps(name.to_json()))


def main() -> None:
    """Read the configuration of a run from stdin, and print the reference as the last line."""
    warn_once(sys.stdout)
    record = json.load(sys.stdin)
    for module in record["modules"]:
        import_module(module)
    try:
        reference = measure(EnvName(**record["environment"]))
    except UserError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(reference)))


if __name__ == "__main__":
    main()
