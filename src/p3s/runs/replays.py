"""The replay of a run as a file of transitions, and back."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.errors import UserError
from p3s.experience.kinds import make_experience
from p3s.experience.normalization import NoNormalizer
from p3s.experience.recorded import Recorded, as_recorded
from p3s.experience.replay import Ring
from p3s.experience.rows import without_marks
from p3s.runs import opening
from p3s.runs.checkpoints import Checkpoints
from p3s.runs.parts import shown_maker
from p3s.runs.starting import fill
from p3s.runs.transitions import read_data, write_transitions
from p3s.schemes.base import StepScheme
from p3s.train import Training


def save_replay(training: Training, path: Path) -> None:
    """Write all transitions in the replay of a training."""
    training.crew.catch_up()
    with contextlib.closing(training.make()) as env:
        found = _recorded(training.config, training.experience.ring, env)
    write_transitions(path, found)


def load_replay(training: Training, path: Path) -> None:
    """Put the transitions of a file into the replay of a training, after those that it has."""
    with contextlib.closing(training.make()) as env:
        data = read_data(str(path), env)
    fill(training, data)


def export_replay(run: Path, path: Path) -> int:
    """Write all transitions in a run's newest intact checkpoint; how many there are."""
    config = opening.config_of(opening.read_record(run), run)
    make = shown_maker(config, opening.env_maker(config))
    with contextlib.closing(make()) as env:
        ring = make_experience(config, env.env_spec, NoNormalizer(), make).ring
        if Checkpoints(run / "checkpoints").read(ring)[0] is None:
            raise UserError(f"{run} holds no checkpoint yet")
        found = _recorded(config, ring, env)
    write_transitions(path, found)
    return len(found.rewards)


def _recorded(config: Config, ring: Ring | None, env: Adapter) -> Recorded:
    """What a ring holds, as recorded transitions."""
    if ring is None:
        raise UserError(f"{config.algorithm.name} keeps no replay")
    if ring.size == 0:
        raise UserError("the replay holds no transitions yet")
    start = ring.num_added % ring.capacity if ring.num_added > ring.capacity else 0
    rows = np.concatenate([ring.rows[start : ring.size], ring.rows[0:start]])
    in_turns = isinstance(config.scheme, StepScheme)
    return as_recorded(without_marks(rows, env.env_spec), env, config.scheme.num_envs, in_turns)
