"""What a person sees of a training: a live bar, or one line per evaluation without a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from p3s.callbacks import Callback
from p3s.machine import available_cores
from p3s.report.formatting import duration_text
from p3s.train import Training

_REFRESHES = 4
"""Of the bar, per second."""
ESTIMATE_AFTER = 10.0
"""Seconds of learning by which the time of the rest is estimated."""
MUCH_STEPPING = 0.2
"""Share of the time from which on workers for the environments are recommended."""
COMPILED_AFTER = 20
"""Updates after which everything is compiled."""


class _Bar(Progress):
    """A bar that looks at what it shows before it draws itself."""

    look: Callable[[], None] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.look is not None:
            self.look()
        return super().get_renderables()


class TrainingProgress(Callback):
    """Follows a training; use as a context."""

    waits_for_evaluations = False

    def __init__(self, training: Training, until: int, console: Console | None = None) -> None:
        self._training, self._until = training, until
        self._console = console or Console()
        self._started, self._first_step = time.perf_counter(), training.total_steps
        self._first_update = training.counters.updates
        self._learning_since: tuple[float, int, float] | None = None
        self._estimated = False
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = _Bar(
                TextColumn("{task.completed:>9,.0f}/{task.total:,.0f}"),
                BarColumn(bar_width=24),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=self._console,
                refresh_per_second=_REFRESHES,
            )
            self._bar.look = self._refresh
            self._task = self._bar.add_task("", total=until, completed=training.total_steps)

    def __enter__(self) -> TrainingProgress:
        if self._bar is not None:
            self._bar.start()
        self._training.callbacks.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._training.callbacks.remove(self)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._training.total_steps)
            self._bar.stop()

    def steps_per_second(self) -> float:
        """Since this process began, evaluations included."""
        elapsed = max(time.perf_counter() - self._started, 1e-9)
        return (self._training.total_steps - self._first_step) / elapsed

    def next_stop(self, training: Training) -> float:
        if self._estimated:
            return math.inf
        return training.total_steps + training.crew.stride * training.scheme.num_envs

    def on_step(self, training: Training) -> None:
        """Once, estimate the time."""
        if not self._estimated:
            self._estimate(time.perf_counter())

    def _refresh(self) -> None:
        """Bring the bar up to date; it asks for it, in a thread of its own."""
        if self._bar is not None:
            done, text = self._training.total_steps, self._describe()
            self._bar.update(self._task, completed=done, description=text)

    def _estimate(self, now: float) -> None:
        """Say how long the run will take, once its speed while learning is known."""
        training = self._training
        if self._learning_since is None:
            if training.counters.updates >= self._first_update + COMPILED_AFTER:
                self._learning_since = now, training.total_steps, training.crew.stepping_seconds
            return
        since, first_step, stepping_before = self._learning_since
        if now < since + ESTIMATE_AFTER:
            return
        self._estimated = True
        rate = (training.total_steps - first_step) / (now - since)
        left = (self._until - training.total_steps) / rate if rate else 0.0
        if left > ESTIMATE_AFTER:
            text = f"{rate:,.0f} steps/s while learning: about {duration_text(left)} to go"
            self._console.print(text, highlight=False)
        share = (training.crew.stepping_seconds - stepping_before) / (now - since)
        useful = min(training.scheme.num_envs, len(available_cores()))
        none = training.options.env_workers == 0 and not training.simulated
        if share > MUCH_STEPPING and useful > 1 and none and left > ESTIMATE_AFTER:
            self._console.print(
                f"stepping the environments takes {share:.0%} of the time: --env-workers {useful} "
                "steps them side by side",
                highlight=False,
                soft_wrap=True,
            )

    def _describe(self) -> str:
        if before := self._training.crew.before_learning:
            return before
        parts = [f"{self.steps_per_second():,.0f} steps/s"]
        if self._training.evaluated:
            parts.append(f"score {self._training.evaluated[-1]['score']:,.1f}")
        parts += _describe_review(self._training.last_review)
        return " · ".join(parts)

    def on_evaluation(self, training: Training, row: dict[str, Any]) -> None:
        """Without a bar: print a line."""
        if self._bar is not None:
            return
        parts = [
            f"step {row['step']:,}/{self._until:,}",
            f"score {row['score']:,.1f}",
            f"mean {row['mean']:,.1f}",
            f"champion {row['champion_return']:,.1f}",
            *_describe_review(self._training.last_review),
            f"{self.steps_per_second():,.0f} steps/s",
        ]
        self._console.print("  ".join(parts), highlight=False, soft_wrap=True)


def _describe_review(review: dict[str, Any]) -> list[str]:
    parts = []
    if review.get("best") is not None:
        parts.append(f"best {review['best']}")
    if review.get("beta") is not None:
        parts.append(f"β {review['beta']:.3g}")
    return parts
