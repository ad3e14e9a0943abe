"""Begin a run in a new folder, or open one that was begun before."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from p3s.config.options import RunOptions
from p3s.config.run import Config, field_values
from p3s.envs import Adapter, make_env
from p3s.errors import UserError
from p3s.learning import devices
from p3s.machine import available_cores, available_memory
from p3s.plugins.loading import import_module
from p3s.policies.file import check_layers
from p3s.runs.checkpoints import Checkpoints, step_folders
from p3s.runs.files import make_folder
from p3s.runs.parts import shown_maker
from p3s.runs.provenance import provenance
from p3s.runs.records import RunFolder, is_complete, read_config, write_config
from p3s.runs.rows import read_intact_rows
from p3s.runs.starting import begin_warm
from p3s.runs.trust import (
    as_list,
    check_modules,
    is_own_record,
    refuse_cluster,
    refuse_links,
    refuse_sources,
)
from p3s.train import Training
from p3s.types import EnvSpec

MakeEnv = Callable[[], Adapter]
LARGEST_LAYER = 1 << 22
BYTES_PER_COPY = 1 << 16
"""What an environment copy takes at least."""
NO_CHECKPOINT = "no checkpoint yet: starting from the beginning"


LEFT_BEHIND = (".lock", ".config.json.tmp", "config.json", "traceback.txt")
"""Files of a run that ended before it had anything to keep."""


def env_maker(config: Config) -> MakeEnv:
    """A function that makes one more copy of the run's environment."""
    if config.env is None:
        raise UserError(
            "this run's environment was a Python callable: give it again, "
            "Population.load(path, env=...)"
        )
    return partial(make_env, config.env)


def default_folder(config: Config) -> Path:
    """runs/<env>/<scheme>-<algorithm>/<seed>-<time>."""
    env = config.env.id if config.env is not None else "custom"
    if config.env is not None and config.env.delay is not None:
        env += f"-delay-{config.env.delay}"
    method = f"{config.scheme.name}-{config.algorithm.name}"
    stamp = f"{config.options.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    return Path("runs") / re.sub(r"[^\w.-]+", "-", env) / method / stamp


def begin(
    config: Config, out: Path | None, make: MakeEnv | None = None, loggers: Iterable[str] = ()
) -> Training:
    """A new run; nothing is written before everything has been checked."""
    path = default_folder(config) if out is None else out
    if (path / "config.json").exists() and not _is_empty(path):
        raise UserError(
            f"{path} holds a run already: continue it with 'p3s resume {path}', in Python with "
            f"Population.load({str(path)!r})"
        )
    if path.exists() and not _is_empty(path):
        raise UserError(f"{path} exists and is not an empty folder: choose another --out")
    make = make or env_maker(config)
    training, folder = begun(config, make), RunFolder(path, loggers)
    try:
        make_folder(path)
        folder.claim()
        if not _is_empty(path):
            raise UserError(f"{path} holds a run that another process has just begun")
        write_config(path, {**config.to_json(), "loggers": list(loggers), **provenance()})
        training.attach(folder)
    except BaseException:
        folder.close()
        training.close()
        raise
    return training


def begun(config: Config, make: MakeEnv) -> Training:
    """A new training with all that it is to have before its first step."""
    training = Training(config, make)
    try:
        begin_warm(training)
    except BaseException:
        training.close()
        raise
    return training


def continue_in(path: Path, training: Training, loaded: str | None) -> None:
    """Write to the folder of a run that was loaded from it, from now on.

    loaded: its newest checkpoint at that time.
    """
    record = read_config(path)
    folder = RunFolder(path, loggers_of(record))
    folder.claim()
    try:
        if newest_checkpoint(path) != loaded:
            raise UserError(f"{path} has gone on since it was loaded: load it again")
        write_config(path, {**record, **training.config.to_json()})
        training.attach(folder)
    except BaseException:
        folder.close()
        raise


def newest_checkpoint(path: Path) -> str | None:
    """The name of a run's newest checkpoint, intact or not."""
    return max((folder.name for folder in step_folders(path / "checkpoints")), default=None)


def declare_steps(path: Path, steps: int) -> None:
    """Let a run be as long as this from now on, for those who read its record."""
    record = read_config(path)
    if record.get("steps") != steps:
        write_config(path, {**record, "steps": steps})


def _is_empty(path: Path) -> bool:
    """Whether a folder holds no more than a run leaves that could not take a step."""
    if not path.is_dir():
        return False
    return all(
        file.name in LEFT_BEHIND or (file.suffix == ".jsonl" and file.stat().st_size == 0)
        for file in path.iterdir()
    )


def reopen(path: Path, steps: int | None = None, **run_options: Any) -> tuple[Training, list[str]]:
    """A run at its newest intact checkpoint, ready to continue; and what to tell the user.

    run_options: other options of the run from now on; None for what it has.
    """
    record = read_record(path)
    config = config_of(record, path)
    if not is_own_record(record):
        refuse_links(path)
        config = dataclasses.replace(config, options=with_few_workers(config.options))
        if config.options.data_share > 0 and run_options.get("data") is None:
            refuse_sources(config.options.data)
        if config.options.engine == "ray" and run_options.get("address") is None:
            refuse_cluster(config.options.address)
    if run_options.get("data") is not None and config.options.data_share == 0:
        raise UserError(f"{path} reads no data after its start: leave data out", "data")
    given, steps_before = {"steps": steps, **run_options}, config.options.steps
    changed = {name: value for name, value in given.items() if value is not None}
    if run_options.get("env_workers") == 0:  # then nobody can be replaced
        changed = {"env_restarts": 0, "env_step_limit": None, **changed}
    if changed:
        options = dataclasses.replace(config.options, **changed)
        config = dataclasses.replace(config, options=options)
    folder = RunFolder(path, loggers_of(record))
    folder.claim()
    training = None
    try:
        make = env_maker(config)
        if not is_own_record(record):
            check_size(config, make)
        training = Training(config, make)
        notes = restore(training, path)
        if training.total_steps == 0 and is_complete(path, steps_before):
            raise UserError(f"{path} is complete and its checkpoints are gone: it cannot continue")
        if NO_CHECKPOINT in notes:
            if not is_own_record(record):
                refuse_sources(config.options.data, config.options.start_from)
            begin_warm(training)
        if steps is not None and steps < training.total_steps:
            raise UserError(f"{path} has {training.total_steps:,} steps already, not {steps:,}")
        training.attach(folder)
    except BaseException:
        folder.close()
        if training is not None:
            training.close()
        raise
    if steps is not None:
        write_config(path, {**record, "steps": steps})
    return training, notes


def with_few_workers(options: RunOptions) -> RunOptions:
    """No more processes than cores, whatever a stranger's run asks for; results are the same."""
    most = len(available_cores())
    evaluating = options.evaluation_workers
    return dataclasses.replace(
        options,
        env_workers=min(options.env_workers, most),
        evaluation_workers=None if evaluating is None else min(evaluating, most),
    )


def loggers_of(record: dict[str, Any]) -> list[str]:
    """The loggers of a recorded run; p3s 0.1 knew TensorBoard alone, early 0.2 wrote `log`."""
    if record.get("tensorboard") is True:
        return ["tensorboard"]
    names = as_list(record.get("loggers", record.get("log")))
    return [name for name in names if isinstance(name, str)]


def check_size(config: Config, make: MakeEnv) -> None:
    """Refuse someone else's run whose learners would not fit into memory."""
    try:
        check_layers(field_values(config.algorithm), LARGEST_LAYER)
    except ValueError as error:
        raise UserError(str(error)) from error
    spec, free = spec_of(config, make), available_memory()
    state = jax.eval_shape(lambda: config.scheme.init(jax.random.key(0), spec))
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    needed += config.scheme.num_envs * BYTES_PER_COPY
    if free is not None and needed > free:
        raise UserError(
            f"the run takes {needed / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are free"
        )


def spec_of(config: Config, make: MakeEnv) -> EnvSpec:
    """The shapes of a run's environment."""
    example = shown_maker(config, make)()
    example.close()
    return example.env_spec


def restore(training: Training, path: Path) -> list[str]:
    """Put a training into the state of a run's newest intact checkpoint."""
    snapshot, notes = Checkpoints(path / "checkpoints").read(training.experience.ring)
    if snapshot is None:
        notes.append(NO_CHECKPOINT)
        return notes
    try:
        training.resume(snapshot)
        saved, recorder = snapshot.get("evaluated", {}), training.recorder
        recorder.evaluated = _rows_until(training, path, "evaluations", saved.get("rows"))
        recorder.scalars = _rows_until(training, path, "scalars", saved.get("scalars"))
        lineage = _rows_until(training, path, "lineage")
        # A replacement of a learner has a row too, without them.
        reviews = [row for row in lineage if "recent_returns" in row]
        recorder.last_review = reviews[-1] if reviews else {}
    except UserError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"the checkpoint in {path} does not belong to this run: {what}") from error
    return notes


def _rows_until(
    training: Training, path: Path, stream: str, saved: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The rows of a stream up to the checkpoint, from the file or from the checkpoint itself."""
    rows = read_intact_rows(path, stream)[0] if saved is None else saved
    return [row for row in rows if row["step"] <= training.total_steps]


def read_record(path: Path) -> dict[str, Any]:
    """The configuration that belongs to a folder's checkpoint: its own, or config.json."""
    return Checkpoints(path / "checkpoints").config() or read_config(path)


def prepare_devices(record: dict[str, Any]) -> None:
    """Configure jax for the devices that a run is recorded with."""
    wanted = record.get("devices")
    devices.prepare(wanted if type(wanted) is int else None)


def config_of(record: dict[str, Any], path: Path) -> Config:
    """The configuration that a record of a run folder describes."""
    check_modules(record, path)
    for module in as_list(record.get("modules")):
        import_module(module)
    try:
        config = Config.from_json(record)
        config.check()
        return config
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path / 'config.json'} is not a run's configuration: {error}") from error


def load_config(path: Path) -> Config:
    """The configuration of a run folder."""
    return config_of(read_config(path), path)
