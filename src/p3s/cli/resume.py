"""`p3s resume`: a run continued from its last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from p3s.cli.arguments import Flag, Run
from p3s.cli.train import train
from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.trust import trusting


@dataclass(frozen=True)
class Options:
    """Continue a run from its last checkpoint, to the bit."""

    run: Run
    """Run folder."""
    steps: int | None = None
    """New total of environment steps, to make the run longer."""
    evaluation_workers: int | None = None
    """Processes that play evaluations, this time; results do not depend on it."""
    env_workers: int | None = None
    """Processes that the environment copies are spread over, this time; results do not depend on
    it."""
    data: str | None = None
    """Where the run's data are, this time: a file or minari:NAME. They must be the same."""
    address: str | None = None
    """Address of the Ray cluster, this time, for a run with --engine ray."""
    env_restarts: int | None = None
    """How many processes with environments may be replaced, this time."""
    env_step_limit: float | None = None
    """Seconds that a step of one environment copy may take, this time."""
    stop_at: float | None = None
    """Stop when the champion's mean return at an evaluation reaches this, instead of the run's."""
    patience: int | None = None
    """Stop after this many evaluations in a row without improvement, instead of the run's."""
    on_divergence: Literal["stop", "replace"] | None = None
    """What happens when a learner diverges, this time: the run stops, or it is replaced."""
    trust: Flag = False
    """Import the modules that someone else's run names, and unpickle its environments."""
    report: bool = True
    """Leave a page with curves and settings, report.html, in the run folder."""


def run(options: Options) -> int:
    """`p3s resume`."""
    if options.steps is not None and options.steps < 1:
        raise UserError(f"steps must be at least 1, not {options.steps}")
    with trusting(options.trust):
        return _resume(options)


def _resume(options: Options) -> int:
    opening.prepare_devices(opening.read_record(options.run))
    training, notes = opening.reopen(
        options.run,
        options.steps,
        evaluation_workers=options.evaluation_workers,
        env_workers=options.env_workers,
        address=options.address,
        data=options.data,
        env_restarts=options.env_restarts,
        env_step_limit=options.env_step_limit,
        on_divergence=options.on_divergence,
        stop_at=options.stop_at,
        patience=options.patience,
    )
    for note in notes:
        print(note)
    if training.total_steps >= training.options.steps:
        training.close()
        print(f"the run is complete at {training.total_steps:,} steps: --steps makes it longer")
        return 0
    for rule in training.callbacks.drop_met_stop_rules(training.evaluated):
        print(f"{rule} stopped the run before: going on without it")
    print(f"resuming at step {training.total_steps:,}")
    return train(training, options.report)
