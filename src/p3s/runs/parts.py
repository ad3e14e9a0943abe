"""The parts of a run: made from its configuration, snapshotted and resumed, evaluated, closed.

`Training` (train.py) lets them work together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from p3s.callbacks import Callbacks
from p3s.cluster.evaluator import ShardEvaluator
from p3s.cluster.shards import Shards
from p3s.config.observations import describe_observation
from p3s.config.run import Config
from p3s.config.suitability import check_environment
from p3s.envs import Adapter, functional_of, why_on_host, with_masks, with_spec_check
from p3s.evaluation import EvaluationQueue, Evaluator
from p3s.experience.data import Data
from p3s.experience.returns import make_returns
from p3s.learning.device_crew import make_crew
from p3s.learning.health import Health
from p3s.policies.policy import Policy, policy_maker
from p3s.runs.recorder import Recorder
from p3s.runs.records import Records, RunFolder
from p3s.runs.transitions import read_data


def shown_maker(config: Config, make: Callable[[], Adapter]) -> Callable[[], Adapter]:
    """A function that makes the environment as a run's learners see it."""
    algorithm = config.algorithm
    about = algorithm.num_stacked_observations, algorithm.scale_images, algorithm.reads_parts
    return with_masks(make, *about)


class RunParts:
    """All that a run consists of.

    overlap: let updates run while the environments step; results do not depend on it.
    """

    def __init__(self, config: Config, make: Callable[[], Adapter], overlap: bool = True) -> None:
        config.check()
        self.config, self.scheme, self.options = config, config.scheme, config.options
        algorithm, make = config.algorithm, shown_maker(config, make)
        example = make()
        check_environment(config, example)
        self.spec, self.about_spaces = example.env_spec, example.about_spaces()
        self.about_observation = describe_observation(example, algorithm)
        """What becomes of observations that are more than a vector, in a line; None for those."""
        self.simulated = functional_of(example.env) is not None and why_on_host(example) is None
        """Whether all environment copies are stepped by one program."""
        self.data: Data | None = None
        """What minibatches hold besides the run's own transitions (`data_share`)."""
        if self.options.data is not None and self.options.data_share > 0:
            self.data = read_data(self.options.data, example)
        example.close()
        self.make = with_spec_check(make, self.spec)
        about_play = self.make, algorithm, self.options.seed
        if self.options.shards is None:
            self.crew: Any = make_crew(
                config, self.make, self.spec, overlap, self.simulated, self.data
            )
            evaluator = Evaluator(*about_play, self.options.evaluation_workers)
        else:
            self.crew = Shards(config, self.make, self.spec, self.data)
            evaluator = ShardEvaluator(self.crew, *about_play)
        self.counters, self.experience = self.crew.counters, self.crew.experience
        self.returns = make_returns(self.scheme)
        self.evaluations = EvaluationQueue(evaluator)
        self.health, self.recorder = Health(self.scheme), Recorder(self.options)
        self.callbacks = Callbacks.from_options(self.options)

    @property
    def total_steps(self) -> int:
        """Environment steps so far, over all copies."""
        return self.counters.total_steps

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The rows of all evaluations so far, those before a resume too."""
        return self.recorder.evaluated

    @property
    def scalars(self) -> list[dict[str, Any]]:
        """The rows that callbacks have recorded so far, those before a resume too."""
        return self.recorder.scalars

    @property
    def last_review(self) -> dict[str, Any]:
        """The last row of lineage.jsonl; empty before the first review."""
        return self.recorder.last_review

    @property
    def folder(self) -> Records:
        """Where records and checkpoints go."""
        return self.recorder.folder

    # ------------------------------------------------------------------ evaluation

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the population now, and record it."""
        self.begin_evaluation()
        self.collect_evaluations(wait=True)
        return self.evaluated[-1]

    def begin_evaluation(self) -> None:
        """Begin to evaluate the population as it is now."""
        self.crew.catch_up()
        self.evaluations.begin(
            self.crew.champions(),
            self.scheme.extra_champions,
            self.scheme.best(self.returns.values),
            self.options.evaluation_episodes,
            self.crew.scaling,
            self.counters,
            self._policy_maker(),
        )

    def collect_evaluations(self, wait: bool) -> None:
        """Record the evaluations that are done, or wait for all of them."""
        for row, champion in self.evaluations.finished(wait, self.crew.policy):
            self.recorder.add_evaluation(row, champion)
            self.callbacks.tell(self, "evaluation", row)

    @property
    def champion_index(self) -> int:
        """The learner that the last evaluation found best.

        Before the first it is the one that the chief would pick, or learner 0.
        """
        if self.evaluated:
            return self.evaluated[-1]["champion"]
        return self.scheme.best(self.returns.values) or 0

    def policy(self) -> Policy:
        """The champion's policy as it is now, see `champion_index`."""
        self.crew.catch_up()
        learner = self.champion_index
        return self._policy_maker()(learner, self.crew.policy(learner))

    def policies(self) -> list[Policy]:
        """The policies that the run is judged by, as they are now: those of all learners."""
        self.crew.catch_up()
        make = self._policy_maker()
        return [make(index, self.crew.policy(index)) for index in range(len(self.crew.champions()))]

    def _policy_maker(self) -> Any:
        """Makes policies of this moment, from a learner's place and its parameters."""
        about = self.spec, self.about_spaces
        return policy_maker(self.config, *about, self.total_steps, self.crew.scaling)

    # ------------------------------------------------------------------ out and in

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The values of every part, arrays or JSON, from which `resume` continues to the bit."""
        self.collect_evaluations(wait=True)
        self.crew.catch_up()
        parts = {**self.crew.snapshot(), "returns": self.returns.snapshot()}
        own = self.recorder.snapshot()
        return {**parts, **own, "metrics": {**parts["metrics"], **own["metrics"]}}

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> None:
        """Continue from a snapshot; the replay's rows are already in place."""
        self.crew.resume(snapshot)
        self.returns.resume(snapshot.get("returns", {}))
        self.recorder.resume(snapshot)

    def write_checkpoint(self) -> None:
        """Write a checkpoint and the policies into the run folder, if there is one."""
        if isinstance(self.folder, RunFolder):
            self.folder.save_policies(self.policy(), self.recorder.best_policy)
            self.folder.checkpoint(self.total_steps, self.snapshot(), self.experience.ring)
        self.recorder.checkpoint_due = False
        self.callbacks.tell(self, "checkpoint")

    def attach(self, folder: RunFolder) -> None:
        """Write records and checkpoints to this folder, which is claimed, from now on."""
        self.recorder.attach(folder, self.total_steps)

    def close(self) -> None:
        """Close environments and files."""
        with contextlib.ExitStack() as closing:
            for part in (self.folder, self.evaluations, self.crew):
                closing.callback(part.close)
