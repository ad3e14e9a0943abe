"""The Python interface: a population that learns, predicts, is saved and loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np

from p3s.callbacks import Callback, Callbacks, name_of, sorted_listeners
from p3s.config.presets import DEFAULT_PRESET
from p3s.config.run import FROM_LENGTH, resolve_spec
from p3s.config.spec import RunSpec
from p3s.envs import Delay, EnvSource
from p3s.errors import TrainingStopped, UserError, note
from p3s.fields.names import refuse_words_of_others
from p3s.learning import devices
from p3s.policies.policy import Policy
from p3s.report.progress import TrainingProgress
from p3s.report.run_page import leave_run_page
from p3s.runs import opening
from p3s.runs.opening import MakeEnv
from p3s.runs.parameters import learned_arrays, put_learned_arrays
from p3s.runs.replays import load_replay, save_replay
from p3s.runs.saving import is_run, save
from p3s.runs.saving import load as load_training
from p3s.runs.tracebacks import keep_traceback
from p3s.runs.trust import trusting
from p3s.train import Training

Listener = Callback | Callable[["Population"], Any]


class Population:
    """N learners on one environment.

    env: a Gymnasium id or a callable that makes one copy of the environment.
    algorithm: by default the one that suits the environment (`p3s presets`), else td3.
    env_kwargs: arguments for the environment of that id.
    wrappers: 'module:Name' or 'module:Name(stack_size=4)' of what it is wrapped in, the innermost
        first.
    out: a new run folder, which gets what `p3s train` writes: records, checkpoints, the report.
    loggers: what the run is logged to beside its folder: tensorboard, wandb, mlflow, trackio, csv.
    fields: any hyper-parameter or run option by its name (`p3s train --help-all` lists them).

    Use it as a context, or call `close` at the end, where environments or loggers hold something
    open.
    """

    def __init__(
        self,
        env: EnvSource,
        scheme: str = "p3s",
        algorithm: str | None = None,
        num_learners: int | None = None,
        seed: int = 0,
        preset: str = DEFAULT_PRESET,
        delay: Delay | None = None,
        env_kwargs: dict[str, Any] | None = None,
        wrappers: Sequence[str] = (),
        out: str | Path | None = None,
        loggers: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        wanted = fields.get("devices")
        devices.prepare(wanted if isinstance(wanted, int) else None)
        if num_learners is not None:
            fields["num_learners"] = num_learners
        spec = RunSpec(
            env,
            scheme,
            algorithm,
            preset,
            delay,
            {} if env_kwargs is None else env_kwargs,
            wrappers,  # pyright: ignore[reportArgumentType]
            loggers,  # pyright: ignore[reportArgumentType]
            fields={"seed": seed, **fields},
        ).typed()
        config = resolve_spec(spec)
        if out is not None:
            training = opening.begin(config, Path(out), spec.make, spec.loggers)
        elif spec.loggers:
            raise UserError("loggers show what a run folder holds: give one, out='runs/name'")
        else:
            training = opening.begun(config, spec.make)
        self._begin(training, spec.make, None if spec.name is not None else env)

    def _begin(self, training: Training, make: MakeEnv, source: Any) -> None:
        self._training, self._make, self._source = training, make, source
        self._loaded_from: tuple[Path, str | None] | None = None
        """The run folder that is written to once learning goes on, and its newest checkpoint."""
        self._env: gymnasium.Env | None = None
        self._closed = False

    @property
    def training(self) -> Training:
        """The run behind it, with counters, replay and learners."""
        return self._training

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """All evaluations so far, as rows of evaluations.jsonl."""
        return self._training.evaluated

    @property
    def scalars(self) -> list[dict[str, Any]]:
        """What callbacks have recorded so far (`training.record`), as rows of scalars.jsonl."""
        return self._training.scalars

    @property
    def num_steps(self) -> int:
        """Total environment steps so far, over all learners."""
        return self._training.total_steps

    @property
    def num_timesteps(self) -> int:
        """`num_steps`, as Stable-Baselines3 calls it."""
        return self.num_steps

    @property
    def env(self) -> gymnasium.Env:
        """A copy of the environment, as the user knows it, to play in; learners have their own."""
        if self._env is None:
            self._env = self._make().env
        return self._env

    def learn(
        self,
        steps: int | None = None,
        callback: Listener | Sequence[Listener] | None = None,
        progress_bar: bool = True,
        *,
        total_timesteps: int | None = None,
        reset_num_timesteps: bool = False,
        **others: Any,
    ) -> Self:
        """Train for `steps` more environment steps in total; call it again to continue.

        callback: of p3s.callbacks, or a function that is called with the population after every
        time step, where False stops the training; or several of them.
        progress_bar: whether a bar shows how far it is, or lines where there is no terminal.
        total_timesteps: what Stable-Baselines3 calls `steps`.
        reset_num_timesteps: must be False once it has learned, since steps are counted on.

        A step size that changes over a run follows the `steps` that the population was made with,
        `Population(..., steps=200_000)`, or its preset's: not the steps given here.
        """
        refuse_words_of_others(others)
        if self._closed:
            raise UserError("this population is closed: load it again, or make a new one")
        if reset_num_timesteps and self.num_steps > 0:
            message = "learn goes on and counts on: a new Population begins anew"
            raise UserError(f"{message} (reset_num_timesteps=False)")
        training = self._training
        until = self.num_steps + _whole_steps(total_timesteps if steps is None else steps)
        own, functions = sorted_listeners(callback)
        self._check_length(until)

        def after_step(training: Training) -> bool:
            for function in functions:
                if function(self) is False:
                    training.stop(f"{name_of(function)} returned False")
                    return False
            return True

        self._write_to_folder(until)
        before, training.callbacks = training.callbacks, Callbacks([*training.callbacks, *own])
        training.stop_requested, training.stop_reason = False, None
        if progress_bar and training.total_steps == 0 and training.about_observation is not None:
            print(training.about_observation)
        try:
            with TrainingProgress(training, until) if progress_bar else nullcontext():
                training.run(until, after_step if functions else None)
        except TrainingStopped as error:
            if self.folder is not None:
                keep_traceback(self.folder, error)
            raise
        finally:
            training.callbacks = before
        if self.folder is not None:
            leave_run_page(self.folder)
        if progress_bar and training.stop_reason is not None:
            print(f"stopped at step {training.total_steps:,}: {training.stop_reason}")
        return self

    def _check_length(self, until: int) -> None:
        """Say that rates change over more or fewer steps than are learned, if so."""
        config = self._training.config
        follows = config.sources.get("learning_rate_steps") == FROM_LENGTH
        steps, told = config.options.steps, config.sources.get("steps") == "given"
        if follows and self.num_steps == 0 and steps != until and not told:
            wanted = f"Population(..., steps={until}) fits them to this training"
            note(f"step sizes change over {steps:,} environment steps: {wanted}")

    @property
    def folder(self) -> Path | None:
        """The run folder that it writes to, if there is one."""
        return getattr(self._training.folder, "path", None)

    def _write_to_folder(self, until: int) -> None:
        """Write to the run folder it was loaded from, if it was; say how long the run will be."""
        if self._loaded_from is not None:
            path, checkpoint = self._loaded_from
            opening.continue_in(path, self._training, checkpoint)
            self._loaded_from = None
        if self.folder is not None:
            opening.declare_steps(self.folder, until)

    @property
    def stop_reason(self) -> str | None:
        """Why the last `learn` ended before its steps were done; None if it did not."""
        return self._training.stop_reason

    @property
    def policy(self) -> Policy:
        """The policy of the learner that the last evaluation found best, as it is now.

        Before the first evaluation it is the learner that the chief would pick.
        """
        return self._training.policy()

    @property
    def policies(self) -> list[Policy]:
        """The policy of every learner, as it is now; `policies[2]` is that of learner 2.

        Schemes that judge a run by other policies too (`center`, `cem`, `erl`) have those.
        """
        return self._training.policies()

    def get_parameters(self) -> dict[str, np.ndarray]:
        """All that is learned by name: networks, targets, optimizers, stacked over the learners.

        The names are those of a checkpoint, as 'learners/policy/params/0/weight'.
        """
        return learned_arrays(self._training)

    def set_parameters(self, parameters: Mapping[str, Any], exact_match: bool = True) -> None:
        """Put arrays by these names in place of what is learned.

        exact_match: whether every name must be given; without it, others stay as they are.
        """
        put_learned_arrays(self._training, parameters, exact_match)
        self._predicting = None

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, None]:
        """The best policy's actions in the environment's own range, as Stable-Baselines3 has it.

        observation: one of the environment's own, or flat ones, also a batch of them.
        action_masks: which actions are allowed, as in `Policy.predict`.
        """
        time_step = self._training.counters.time_step
        if self._predicting is None or self._predicting[0] != time_step:
            self._predicting = (time_step, self.policy)
        return self._predicting[1].predict(
            observation, state, episode_start, deterministic, action_masks
        )

    _predicting: tuple[int, Policy] | None = None

    def save(self, path: str | Path) -> None:
        """Write everything into a folder, from which `load` continues to the bit.

        A population that was saved there before is replaced. One with a run folder of its own
        (`out`) has its checkpoints there and need not be saved.
        """
        save(self._training, Path(path))

    def save_replay(self, path: str | Path) -> None:
        """Write the transitions in the replay as an npz file, as `p3s replay export` does."""
        save_replay(self._training, Path(path))

    def load_replay(self, path: str | Path) -> None:
        """Put the transitions of such a file into the replay, after those that it has."""
        load_replay(self._training, Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Callable[[], Any] | None = None,
        trust: bool = False,
        record: bool = True,
        **fields: Any,
    ) -> Population:
        """A population from a folder that `save` wrote, or a run: `p3s train`, or `out`.

        env: the callable again, if the population was made with one.
        trust: import the modules that someone else's folder names, and unpickle its environments.
        record: go on writing to the folder of a run, from the next `learn` on; False leaves it
        as it is.
        fields: other values from now on, `learning_rate=1e-4`. What has shaped the learners or the
        replay cannot change; an error says what can.
        """
        path = Path(path)
        population = cls.__new__(cls)
        with trusting(trust):
            population._begin(*load_training(path, env, fields), env)
        if record and is_run(path):
            population._loaded_from = path, opening.newest_checkpoint(path)
        return population

    def close(self) -> None:
        """Close environments, loggers and the run folder; it can be asked, but learns no more."""
        if not self._closed:
            self._closed = True
            if self._env is not None:
                self._env.close()
            self._training.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        training = self._training
        score = ""
        if self.evaluations and self.evaluations[-1]["champion_return"] is not None:
            score = f", champion {self.evaluations[-1]['champion_return']:,.1f}"
        what = f"{training.config.describe()}, seed {training.options.seed}"
        return f"<Population {what}: {self.num_steps:,} steps{score}>"

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as name:
            self.save(name)
            files = [path for path in Path(name).rglob("*") if path.is_file()]
            content = {str(path.relative_to(name)): path.read_bytes() for path in files}
        return _unpickled, (type(self), content, self._source)


def _unpickled(cls: type[Population], content: dict[str, bytes], env: Any) -> Population:
    """A population from the files that `save` wrote."""
    with tempfile.TemporaryDirectory() as name:
        for path, data in content.items():
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / path).write_bytes(data)
        return cls.load(name, env, trust=True)  # who unpickles trusts already


def _whole_steps(steps: Any) -> int:
    """A number of steps; UserError for what is none."""
    if steps is None:
        raise UserError("say how many steps to learn: learn(100_000)")
    if isinstance(steps, np.number):
        steps = steps.item()
    whole = isinstance(steps, int | float) and not isinstance(steps, bool)
    if not whole or steps % 1 != 0:
        raise UserError(f"steps must be a whole number, not {steps!r}")
    if steps < 1:
        raise UserError(f"steps must be at least 1, not {steps}")
    return int(steps)
