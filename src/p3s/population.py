"""The Python interface: a population that learns, predicts, is saved and loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from p3s.callbacks import Callback, Callbacks
from p3s.config.presets import DEFAULT_PRESET
from p3s.config.run import resolve_spec
from p3s.config.spec import RunSpec
from p3s.envs import Delay, EnvName, EnvSource, make_env, with_stacking
from p3s.errors import UserError, note
from p3s.evaluation import Evaluator
from p3s.hub import fetch_policy, is_hub_name, parse_hub_name
from p3s.learning import devices
from p3s.policies.policy import Policy
from p3s.progress import TrainingProgress
from p3s.runs import opening
from p3s.runs.best_policy import BEST, LAST
from p3s.runs.checkpoints import Checkpoints
from p3s.runs.files import make_folder, write_text
from p3s.runs.opening import NO_CHECKPOINT
from p3s.runs.provenance import provenance
from p3s.runs.records import RunFolder, read_config, to_json_line, write_config
from p3s.runs.trust import is_own_record, signed, trusting
from p3s.train import Training

Listener = Callback | Callable[["Population"], Any]


class Population:
    """N learners on one environment.

    env: a Gymnasium id or a callable that makes one copy of the environment.
    algorithm: by default the one that suits the environment (`p3s presets`), else td3.
    env_kwargs: arguments for the environment of that id.
    wrappers: 'module:Name' of what it is wrapped in, the innermost first.
    fields: any hyper-parameter or run option by its name (`p3s train --help-all` lists them).
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
            fields={"seed": seed, **fields},
        ).typed()
        self._training = Training(resolve_spec(spec), spec.make)
        self._source = None if spec.name is not None else env
        """The callable that makes the environment, if it was one."""

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

    def learn(
        self,
        steps: int | None = None,
        callback: Listener | Sequence[Listener] | None = None,
        progress_bar: bool = True,
        *,
        total_timesteps: int | None = None,
    ) -> Self:
        """Train for `steps` more environment steps in total; call it again to continue.

        callback: of p3s.callbacks, or a function that is called with the population after every
        time step, where False stops the training; or several of them.
        total_timesteps: what Stable-Baselines3 calls `steps`.

        A step size that falls over a run (`xqc`) follows the `steps` that the population was made
        with, `Population(..., steps=200_000)`, or its preset's: not the steps given here.
        """
        steps = total_timesteps if steps is None else steps
        if steps is None:
            raise UserError("say how many steps to learn: learn(100_000)")
        whole = isinstance(steps, int | float | np.number) and not isinstance(steps, bool)
        if not whole or steps % 1 != 0:
            raise UserError(f"steps must be a whole number, not {steps!r}")
        if steps < 1:
            raise UserError(f"steps must be at least 1, not {steps}")
        training = self._training
        until = training.total_steps + int(steps)
        given = [callback] if callable(callback) or isinstance(callback, Callback) else callback
        listeners = list(given or ())
        for each in listeners:
            if isinstance(each, type) or not (callable(each) or isinstance(each, Callback)):
                known = "a function or an instance of p3s.callbacks.Callback"
                raise UserError(f"a callback is {known}, not {each!r}")
        functions = [each for each in listeners if not isinstance(each, Callback)]
        own = [each for each in listeners if isinstance(each, Callback)]

        def after_step(training: Training) -> bool:
            for function in functions:
                if function(self) is False:
                    name = getattr(function, "__qualname__", type(function).__name__)
                    named = "a function" if "<lambda>" in name else name.split("<locals>.")[-1]
                    training.stop(f"{named} returned False")
                    return False
            return True

        before, training.callbacks = training.callbacks, Callbacks([*training.callbacks, *own])
        training.stop_requested, training.stop_reason = False, None
        if progress_bar and training.total_steps == 0 and training.about_observation is not None:
            print(training.about_observation)
        try:
            with TrainingProgress(training, until) if progress_bar else nullcontext():
                training.run(until, after_step if functions else None)
        finally:
            training.callbacks = before
        if progress_bar and training.stop_reason is not None:
            print(f"stopped at step {training.total_steps:,}: {training.stop_reason}")
        return self

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

        A population that was saved there before is replaced.
        """
        path = Path(path)
        if (path / "metrics.jsonl").exists():
            raise UserError(f"{path} holds a run of 'p3s train': save to another folder")
        make_folder(path)
        folder = RunFolder(path)
        folder.claim()
        try:
            record = signed({**self._training.config.to_json(), **provenance()})
            # The checkpoint comes first and has its own configuration: a kill after it leaves
            # this population, a kill before it the one that was saved there.
            Checkpoints(path / "checkpoints", kept=1).write(
                self.num_steps,
                {
                    **self._training.snapshot(),
                    "config": record,
                    "evaluated": {"rows": self.evaluations, "scalars": self.scalars},
                },
                self._training.experience.ring,
            )
            write_config(path, record)
            self.policy.save(path / LAST)
            self._training.recorder.best_policy.save(path)
            lines = "".join(map(to_json_line, self.scalars))
            if lines or (path / "scalars.jsonl").exists():
                write_text(path / "scalars.jsonl", lines)
        finally:
            folder.close()

    @classmethod
    def load(
        cls, path: str | Path, env: Callable[[], Any] | None = None, trust: bool = False
    ) -> Population:
        """A population from a folder that `save` or `p3s train` wrote.

        env: the callable again, if the population was made with one.
        trust: import the modules that someone else's folder names, and unpickle its environments.
        """
        with trusting(trust):
            return cls._load(Path(path), env)

    @classmethod
    def _load(cls, path: Path, env: Callable[[], Any] | None) -> Population:
        record = opening.read_record(path)
        opening.prepare_devices(record)
        config = opening.config_of(record, path)
        population = cls.__new__(cls)
        delay = config.callable_delay
        make = partial(make_env, env, delay) if env is not None else opening.env_maker(config)
        if not is_own_record(record):
            opening.check_size(config, make)
        if env is not None and (path / LAST).exists():
            saved = Policy.load(path / LAST)
            example = with_stacking(make, saved.num_stacked_observations, saved.spec.masked)()
            found = example.env_spec
            example.close()
            if saved.spec != found:
                raise UserError(
                    f"{path} was saved with {saved.spec}, and this environment has {found}"
                )
        population._training = Training(config, make)
        notes = opening.restore(population._training, path)
        if NO_CHECKPOINT in notes:
            raise UserError(f"{path} holds no checkpoint yet")
        for line in notes:
            note(line)
        population._source = env
        return population

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


def load(path: str | Path, last: bool = False, trust: bool = False) -> Policy:
    """A policy from its file, or from a run folder: the best at an evaluation, or the last one.

    A run that has not been evaluated has only the last one.
    path: a name on the Hugging Face Hub, too: hub:USER/NAME, or hub:USER/NAME@REVISION.
    trust: import the modules that someone else's file or folder names.
    """
    if is_hub_name(path):
        return _load_from_hub(path, last, trust)
    path = Path(path)
    if path.is_dir() and not (path / LAST).exists():
        raise UserError(f"{path} holds no policy yet: is it a run?")
    with trusting(trust):
        own = False
        if path.is_dir() and (path / "config.json").exists():
            opening.load_config(path)  # imports the modules that the run needs
            own = is_own_record(read_config(path))
        file = path
        if path.is_dir():
            file = path / (LAST if last or not (path / BEST).exists() else BEST)
        policy = Policy.load(file)
    policy.trusted = own or trust
    return policy


def _load_from_hub(path: str | Path, last: bool, trust: bool) -> Policy:
    """The policy of a repository on the Hub."""
    name = parse_hub_name(path)
    if last:
        raise UserError(f"{name} holds one policy: leave last out")
    file = fetch_policy(name)
    try:
        policy = Policy.load(file)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    policy.trusted = trust
    return policy


def evaluate(
    policy: Policy | Population,
    env: EnvSource | EnvName | None = None,
    episodes: int = 10,
    seed: int = 0,
    delay: Delay | None = None,
    deterministic: bool = True,
) -> np.ndarray:
    """Returns of noiseless episodes, (episodes,); on the policy's own environment by default.

    deterministic: False plays with the policy's own noise.
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    own = policy.training.make if isinstance(policy, Population) else None
    policy = policy.policy if isinstance(policy, Population) else policy
    own = own or policy.make_env
    make = own if env is None else partial(policy.make_env, env=env, delay=delay)
    example = make()
    if example.env_spec != policy.spec:
        raise UserError(f"the policy is for {policy.spec}, the environment has {example.env_spec}")
    example.close()
    evaluator = Evaluator(make, policy.algorithm, seed)
    stacked = jax.tree.map(lambda leaf: leaf[None], policy.params)
    returns = evaluator.play(stacked, episodes, 0, policy.scaling, not deterministic)[0]
    evaluator.close()
    return returns
