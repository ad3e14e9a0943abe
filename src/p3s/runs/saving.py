"""A whole population in a folder, and back: what `Population.save` writes and `load` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from p3s.envs import make_env, with_stacking
from p3s.errors import UserError, note
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.best_policy import LAST
from p3s.runs.changes import with_changes
from p3s.runs.checkpoints import Checkpoints
from p3s.runs.files import make_folder, write_text
from p3s.runs.opening import NO_CHECKPOINT, MakeEnv
from p3s.runs.provenance import provenance
from p3s.runs.records import RunFolder, to_json_line, write_config
from p3s.runs.trust import is_own_record, refuse_sources, signed
from p3s.train import Training


def save(training: Training, path: Path) -> None:
    """Write everything into a folder, from which `load` continues to the bit."""
    if is_run(path):
        raise UserError(f"{path} holds a run with its records: save to another folder")
    make_folder(path)
    folder = RunFolder(path)
    folder.claim()
    try:
        record = signed({**training.config.to_json(), **provenance()})
        # The checkpoint comes first and has its own configuration: a kill after it leaves
        # this population, a kill before it the one that was saved there.
        Checkpoints(path / "checkpoints", kept=1).write(
            training.total_steps,
            {
                **training.snapshot(),
                "config": record,
                "evaluated": {"rows": training.evaluated, "scalars": training.scalars},
            },
            training.experience.ring,
        )
        write_config(path, record)
        training.policy().save(path / LAST)
        training.recorder.best_policy.save(path)
        lines = "".join(map(to_json_line, training.scalars))
        if lines or (path / "scalars.jsonl").exists():
            write_text(path / "scalars.jsonl", lines)
    finally:
        folder.close()


def is_run(path: Path) -> bool:
    """Whether a folder is one that a run keeps its records in."""
    return (path / "metrics.jsonl").exists()


def load(
    path: Path, env: Callable[[], Any] | None, changes: Mapping[str, Any]
) -> tuple[Training, MakeEnv]:
    """A training from a folder that `save` or a run wrote, and what makes its environment.

    env: the callable again, if the run was made with one. changes: other values of fields.
    """
    record = opening.read_record(path)
    opening.prepare_devices(record)
    config = opening.config_of(record, path)
    delay = config.callable_delay
    make = partial(make_env, env, delay) if env is not None else opening.env_maker(config)
    if not is_own_record(record):
        if config.options.data_share > 0 and "data" not in changes:
            refuse_sources(config.options.data)
        opening.check_size(config, make)
    if env is not None and (path / LAST).exists():
        _check_shapes(path, make)
    if changes:
        config = with_changes(config, changes, opening.spec_of(config, make))
    training = Training(config, make)
    notes = opening.restore(training, path)
    if NO_CHECKPOINT in notes:
        raise UserError(f"{path} holds no checkpoint yet")
    for line in notes:
        note(line)
    return training, make


def _check_shapes(path: Path, make: MakeEnv) -> None:
    """Refuse an environment with other shapes than the one that was trained on."""
    saved = Policy.load(path / LAST)
    keeps_images = bool(saved.spec.observation.images)
    about = saved.num_stacked_observations, saved.spec.masked, True, keeps_images
    example = with_stacking(make, *about)()
    found = example.env_spec
    example.close()
    if saved.spec != found:
        raise UserError(f"{path} was saved with {saved.spec}, and this environment has {found}")
