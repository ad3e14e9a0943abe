"""How a run is run and recorded: fields that every run has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from p3s.errors import UserError
from p3s.fields.types import Count, CountOrZero, Positive, Share


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is run and recorded, whatever is learned."""

    seed: CountOrZero = 0
    """Everything random follows from this."""
    steps: Count = 1_000_000
    """Environment steps in total, over all learners."""
    buffer_size: Count = 1_000_000
    """Transitions that the common replay holds."""
    replay_device: Literal["host", "device"] | None = None
    """Where the replay of environments that are JAX programs is: with them on the device, so that
    whole stretches of training are one program, or on the host; by default on the device up to
    2 GB. Results depend on it in their last bits at most."""
    credit: Literal["none", "ircr", "rrd"] = "none"
    """What learners are paid for a step when rewards come late: none, what the environment pays;
    ircr, an equal share of what its episode was paid; rrd, a learned reward."""
    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Hindsight replay, for environments with goals: steps learn from goals that the same episode
    reached later (future), last (final) or at any time (episode)."""
    hindsight_goals: Count = 4
    """Steps with a goal of hindsight for each one with its own goal (k)."""
    data: str | None = None
    """Transitions from before the run: a file that p3s replay export wrote, or minari:NAME."""
    data_share: Share = 0.0
    """The part of every minibatch that comes from the data, for good; 0: they are the first
    transitions in the replay, and are overwritten like all others."""
    start_from: str | None = None
    """A trained policy that learners start from: a file, a run folder, or hub:USER/NAME."""
    start_learners: tuple[CountOrZero, ...] = ()
    """The learners that start from it, or from a clone; by default all."""
    cloning_updates: CountOrZero = 0
    """Updates that fit the first policy to the data's actions before training."""
    evaluation_period: CountOrZero = 4000
    """Total environment steps between two evaluations (R_eval); 0 for none."""
    evaluation_episodes: Count = 10
    """Noiseless episodes of each learner at an evaluation."""
    evaluation_workers: CountOrZero | None = None
    """Processes that play evaluations while training goes on; 0: this process; by default as many
    as there are cores, where an evaluation takes long. Results do not depend on it."""
    env_workers: CountOrZero = 0
    """Processes that the environment copies are spread over; 0: this process. For environments
    that take long to step. Results do not depend on it."""
    env_restarts: CountOrZero = 0
    """How many processes with environments may be replaced in all, if they die or exceed
    `env_step_limit`; the episodes of their copies are lost."""
    env_step_limit: Positive | None = None
    """Seconds that a step of one environment copy may take, with the reset after it; a process
    that takes longer is ended. Needs environments in processes of their own (env_workers)."""
    devices: Count | None = None
    """Devices that the learners are spread over in equal parts: accelerators, or cores of a CPU; by
    default as many as pay. The last bits of results depend on it."""
    on_divergence: Literal["stop", "replace"] = "stop"
    """What happens when parameters of a learner become non-finite: the run stops, or a perturbed
    copy of the best of the others takes its place."""
    engine: Literal["local", "ray"] = "local"
    """Where shards live: local, in this process, or ray, on the machines of a Ray cluster."""
    shards: Count | None = None
    """Parts that the population is split into, each with its learners, their environments and a
    replica of the replay. The last bits of results depend on it."""
    exchange_period: Count = 10
    """Own steps of a learner between two exchanges of transitions among shards."""
    address: str | None = None
    """Address of the Ray cluster; by default Ray is started on this machine for the run."""
    shard_cpus: Count = 1
    """CPUs that each shard asks of the Ray cluster."""
    shard_gpus: CountOrZero = 0
    """GPUs that each shard asks of the Ray cluster."""
    cluster_wait: Positive = 60.0
    """Seconds in which the Ray cluster has to have room for the shards."""
    stop_at: float | None = None
    """Stop when the champion's mean return at an evaluation reaches this."""
    patience: Count | None = None
    """Stop when this many evaluations in a row have not improved the champion's mean return."""
    video_period: CountOrZero = 0
    """Total environment steps between two films of the champion, in videos/; 0 for none."""
    checkpoint_period: CountOrZero = 5000
    """Total environment steps between two checkpoints; 0 for only one at the end."""
    metrics_period: Count = 1000
    """Total environment steps between two rows of metrics.jsonl."""

    def problem(self) -> UserError | None:
        """What is wrong with the options taken together, or None."""
        if self.env_workers == 0 and (self.env_restarts or self.env_step_limit is not None):
            message = (
                "env_restarts and env_step_limit need processes with environments: env_workers"
            )
            return UserError(message, "env_restarts" if self.env_restarts else "env_step_limit")
        if self.env_step_limit is not None and os.name == "nt":
            return UserError("env_step_limit is not possible on Windows", "env_step_limit")
        if self.evaluation_period == 0 and (self.stop_at is not None or self.patience is not None):
            message = "stop_at and patience need evaluations: evaluation_period"
            return UserError(message, "patience" if self.stop_at is None else "stop_at")
        return None
