"""What a run writes, and when: metrics, evaluations, the lineage, checkpoints."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from p3s.config.options import RunOptions
from p3s.errors import note
from p3s.learning.counters import Counters
from p3s.learning.crew import Played
from p3s.learning.metrics import Window, means_of
from p3s.policies.policy import Policy
from p3s.runs.best_policy import BestPolicy
from p3s.runs.records import Records, RunFolder


class Due(NamedTuple):
    """What is to be written now."""

    metrics: bool
    evaluation: bool
    checkpoint: bool
    overdue: bool
    """Whether a checkpoint was put off before."""


class Recorder:
    """Keeps the records of a run, in a folder if it has one."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self.folder: Records = Records()
        self.best_policy = BestPolicy()
        self.evaluated: list[dict[str, Any]] = []
        """The rows of all evaluations so far, those before a resume too."""
        self.scalars: list[dict[str, Any]] = []
        """The rows that callbacks have recorded so far, those before a resume too."""
        self.last_review: dict[str, Any] = {}
        self.checkpoint_due = False
        self._episodes: list[list[Any]] = []
        """Training episodes since the last row of metrics."""
        self._lost: list[int] = []
        """Copies that lost an episode since then."""

    def next_stop(self, total_steps: int) -> float:
        """The total step at which something is due next."""
        options = self._options
        periods = options.metrics_period, options.evaluation_period, options.checkpoint_period
        return min(((total_steps // p + 1) * p for p in periods if p), default=math.inf)

    def due(self, previous: int, total_steps: int, last: bool) -> Due:
        """What is due: a multiple of its period lies within the last stretch, or it is the last."""

        def is_due(period: int) -> bool:
            return period > 0 and (last or total_steps // period > previous // period)

        options, overdue = self._options, self.checkpoint_due
        self.checkpoint_due = overdue or is_due(options.checkpoint_period)
        metrics, evaluation = is_due(options.metrics_period), is_due(options.evaluation_period)
        return Due(metrics, evaluation, self.checkpoint_due, overdue)

    def append(self, stream: str, row: dict[str, Any]) -> None:
        """Write one row."""
        self.folder.append(stream, row)

    def note(self, played: Played) -> None:
        """Take note of training episodes."""
        self._episodes += [list(episode) for _, episode in played.episodes]
        self._lost += played.lost

    def add_metrics(
        self, counters: Counters, window: Window, recent_returns: list[float], about: dict[str, Any]
    ) -> None:
        """Write a row of metrics; the next one starts empty."""
        seconds = max(counters.seconds, 1e-9)
        row = {
            "step": counters.total_steps,
            "updates": counters.total_updates,
            "seconds": round(seconds, 3),
            "steps_per_second": round(counters.total_steps / seconds, 1),
            "recent_returns": recent_returns,
            "episodes": self._episodes,
            "learners": means_of(window),
            **({"lost_episodes": self._lost} if self._lost else {}),
            **about,
        }
        self._episodes, self._lost = [], []
        self.append("metrics", row)

    def add_review(self, row: dict[str, Any]) -> None:
        """Write what the chief saw and did."""
        self.last_review = row
        self.append("lineage", row)

    def add_replacement(self, total_steps: int, learners: list[int], source: int) -> None:
        """Write that copies of a learner have taken the place of others, and say so."""
        for learner in learners:
            note(
                f"learner {learner} diverged at total step {total_steps:,}: "
                f"replaced by a perturbed copy of learner {source}"
            )
        self.append("lineage", {"step": total_steps, "replaced": learners, "source": source})

    def add_evaluation(self, row: dict[str, Any], champion: Policy) -> None:
        """Write an evaluation; keep its champion if there was none better."""
        self.evaluated.append(row)
        self.append("evaluations", row)
        self.best_policy.see(champion, row)

    def add_scalars(self, row: dict[str, Any]) -> None:
        """Write numbers of a callback."""
        self.scalars.append(row)
        self.append("scalars", row)

    def attach(self, folder: RunFolder, total_steps: int) -> None:
        """Write to this folder from now on."""
        folder.open(self.folder.snapshot(), total_steps)
        self.folder = folder

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The parts of a checkpoint that are the recorder's; `metrics` is shared with the crew."""
        return {
            "metrics": {"episodes": self._episodes, "lost": self._lost},
            "best_policy": self.best_policy.snapshot(),
            "records": self.folder.snapshot(),
        }

    def resume(self, values: dict[str, dict[str, Any]]) -> None:
        """Continue from a snapshot."""
        metrics = values["metrics"]
        self._episodes, self._lost = list(metrics["episodes"]), list(metrics.get("lost", ()))
        self.best_policy.resume(values.get("best_policy", {}))
        self.folder.resume(values.get("records", {}))
