"""What is done at the events of a training: stop it, look at it, film it, measure it.

    population.learn(100_000, callback=[StopAt(3000), RecordVideo(every=20_000)])

A callback of your own derives from `Callback` and defines the events that it wants:

    class Mine(Callback):
        def on_evaluation(self, training, row): ...     return False to stop the training

    on_step          after every time step, or at those that `next_stop` names
    on_review        the chief has chosen: a row of lineage.jsonl
    on_evaluation    an evaluation is done: a row of evaluations.jsonl
    on_checkpoint    a checkpoint is written
    on_end           training ends, for whatever reason but an error

Callbacks are asked in their order, each at every event. An exception in one stops the run; the
last checkpoint is intact. None of them draws from the run's random streams, so a run with
callbacks has the bits of one without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.errors import TrainingStopped, UserError

if TYPE_CHECKING:
    from p3s.config.options import RunOptions
    from p3s.envs import EnvSource
    from p3s.train import Training


class Callback:
    """Does nothing at any event."""

    waits_for_evaluations = True
    """Whether training waits for an evaluation, so that a stop never depends on timing."""

    def next_stop(self, training: Training) -> float:
        """The total step at which `on_step` has to be called next.

        It is called whenever the training stops to look around; every time step if it is defined.
        """
        listens = type(self).on_step is not Callback.on_step
        return training.total_steps + 1 if listens else math.inf

    def on_step(self, training: Training) -> Any:
        """A time step of all learners is done."""

    def on_review(self, training: Training, row: dict[str, Any]) -> Any:
        """The chief has looked at the learners."""

    def on_evaluation(self, training: Training, row: dict[str, Any]) -> Any:
        """An evaluation is done."""

    def on_checkpoint(self, training: Training) -> Any:
        """A checkpoint is written."""

    def on_end(self, training: Training) -> Any:
        """The training ends."""


class StopRule(Callback):
    """Stops a training by its evaluations so far, those before a resume too."""

    option: str
    """What it is called on the command line."""
    reason: str

    def on_evaluation(self, training: Training, row: dict[str, Any]) -> Any:
        if self.is_met(training.evaluated):
            training.stop(self.reason)

    def is_met(self, evaluations: list[dict[str, Any]]) -> bool:
        """Whether these evaluations are a reason to stop."""
        raise NotImplementedError


class StopAt(StopRule):
    """Stop when the champion's mean return reaches a threshold."""

    def __init__(self, threshold: float) -> None:
        self.threshold, self.option = threshold, "--stop-at"
        self.reason = f"the champion's return reached {threshold:,g}"

    def is_met(self, evaluations: list[dict[str, Any]]) -> bool:
        """Whether an evaluation reached it."""
        return any(value >= self.threshold for value in champion_returns(evaluations))


class StopWithoutImprovement(StopRule):
    """Stop when the champion's mean return was not improved by this many evaluations in a row."""

    def __init__(self, patience: int) -> None:
        if patience < 1:
            raise UserError(f"patience must be at least 1, not {patience}")
        self.patience, self.option = patience, "--patience"
        self.reason = f"no improvement in {patience} evaluations"

    def is_met(self, evaluations: list[dict[str, Any]]) -> bool:
        """Whether the best evaluation is so long ago."""
        returns = champion_returns(evaluations)
        return len(returns) - 1 - int(np.argmax(returns or [0.0])) >= self.patience


def champion_returns(evaluations: list[dict[str, Any]]) -> list[float]:
    """The champion's mean return at each evaluation that had one."""
    found = [row["champion_return"] for row in evaluations]
    return [value for value in found if value is not None]


class Every(Callback):
    """Acts once per `every` environment steps, at the first time step at or after them."""

    def __init__(self, every: int) -> None:
        if every < 1:
            raise UserError(f"every must be at least 1, not {every}")
        self.every, self._last = every, -1

    def next_stop(self, training: Training) -> float:
        return (training.total_steps // self.every + 1) * self.every

    def on_step(self, training: Training) -> Any:
        number = training.total_steps // self.every
        if self._last < 0:  # the first step that is seen, of a resumed run maybe
            self._last = (training.total_steps - training.scheme.num_envs) // self.every
        if number > self._last:
            self._last = number
            return self.act(training)
        return None

    def act(self, training: Training) -> Any:
        """What is done."""
        raise NotImplementedError


class EvaluateOn(Every):
    """Play the champion on another environment, and record its mean return.

    env: a Gymnasium id, or a callable that makes the environment.
    name: of the series in scalars.jsonl and in loggers.
    """

    def __init__(
        self, env: EnvSource, every: int, episodes: int = 10, name: str | None = None
    ) -> None:
        super().__init__(every)
        self.env, self.episodes = env, episodes
        self.name = name or (env if isinstance(env, str) else getattr(env, "__name__", "other"))

    def act(self, training: Training) -> Any:
        from p3s.policies.trained import evaluate

        returns = evaluate(training.policy(), self.env, self.episodes, training.options.seed)
        training.record({f"eval_on/{self.name}": float(returns.mean())})


class RecordVideo(Every):
    """Film an episode of the champion once per `every` steps: RUN/videos/step-N.mp4.

    folder: another place for the films; needed where there is no run folder.
    """

    def __init__(self, every: int, folder: str | Path | None = None) -> None:
        from p3s.policies.film import film_maker

        super().__init__(every)
        film_maker()  # an extra: missing now rather than later
        self.folder = None if folder is None else Path(folder)

    def act(self, training: Training) -> Any:
        from p3s.policies.film import film

        own = getattr(training.folder, "path", None)
        folder = self.folder if self.folder is not None or own is None else own / "videos"
        if folder is None:
            raise UserError("RecordVideo needs a folder here: RecordVideo(every, folder=...)")
        policy = training.policy()
        policy.trusted = True
        named = training.config.env is not None
        make = partial(policy.make_env, "rgb_array") if named else training.make
        film(policy, folder / f"step-{training.total_steps}.mp4", make)


class Metrics(Every):
    """Record numbers of your own, by name: rows of `population.scalars` and of scalars.jsonl."""

    def __init__(self, measure: Callable[[Training], Mapping[str, float]], every: int) -> None:
        super().__init__(every)
        self.measure = measure

    def act(self, training: Training) -> Any:
        training.record(dict(self.measure(training)))


class Callbacks(list[Callback]):
    """The callbacks of a run, asked in their order."""

    @classmethod
    def from_options(cls, options: RunOptions) -> Callbacks:
        """Those that a run's options ask for."""
        found = cls()
        if options.stop_at is not None:
            found.append(StopAt(options.stop_at))
        if options.patience is not None:
            found.append(StopWithoutImprovement(options.patience))
        if options.video_period:
            found.append(RecordVideo(options.video_period))
        return found

    @property
    def wait_for_evaluations(self) -> bool:
        """Whether one of them wants evaluations when they are due."""
        return any(callback.waits_for_evaluations for callback in self)

    def next_stop(self, training: Training) -> float:
        """The total step at which one of them has to be asked next."""
        return min((callback.next_stop(training) for callback in self), default=math.inf)

    def tell(self, training: Any, event: str, *about: Any) -> None:
        """Let them know of an event; one that returns False stops the run."""
        for callback in list(self):
            try:
                if getattr(callback, f"on_{event}")(training, *about) is False:
                    training.stop(f"{type(callback).__name__} stopped it")
            except UserError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise TrainingStopped(f"{type(callback).__name__} raised {what}") from error

    def drop_met_stop_rules(self, evaluated: list[dict[str, Any]]) -> list[str]:
        """Drop the rules by which the run would stop at once; the names of their options."""
        met = [each for each in self if isinstance(each, StopRule) and each.is_met(evaluated)]
        self[:] = [each for each in self if each not in met]
        return [each.option for each in met]


__all__ = [
    "Callback",
    "EvaluateOn",
    "Every",
    "Metrics",
    "RecordVideo",
    "StopAt",
    "StopWithoutImprovement",
]


def sorted_listeners(
    given: Callback | Callable[..., Any] | Sequence[Callback | Callable[..., Any]] | None,
) -> tuple[list[Callback], list[Callable[..., Any]]]:
    """The callbacks and the functions among those who listen."""
    one = callable(given) or isinstance(given, Callback)
    listeners: list[Any] = [given] if one else list(given or ())  # type: ignore[reportArgumentType]
    for each in listeners:
        if isinstance(each, type) or not (callable(each) or isinstance(each, Callback)):
            known = "a function or an instance of p3s.callbacks.Callback"
            raise UserError(f"a callback is {known}, not {each!r}")
    own = [each for each in listeners if isinstance(each, Callback)]
    return own, [each for each in listeners if not isinstance(each, Callback)]


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called in messages."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return "a function" if "<lambda>" in name else name.split("<locals>.")[-1]
