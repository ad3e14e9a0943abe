"""What does not go together with data from before the run, and with policies to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p3s.errors import UserError
from p3s.schemes.base import EpisodeScheme

if TYPE_CHECKING:
    from p3s.config.run import Config


def problem_of_data(config: Config) -> UserError | None:
    """What is wrong with how a run uses data, or None."""
    options, algorithm, share = config.options, config.algorithm, config.options.data_share
    message, about = "", "data"
    if options.data is None:
        if share > 0:
            message, about = "data_share needs data (--data)", "data_share"
        elif options.cloning_updates > 0:
            message, about = "cloning_updates need data (--data)", "cloning_updates"
    elif algorithm.on_policy:
        message = f"data are for a replay, and {algorithm.name} keeps none"
    elif share == 0 and options.shards is not None:
        message = "data in shards need a share of their own (--data-share)"
    elif share == 0 and config.scheme.own_rows > 0:
        message = "data beside own_share need a share of their own (--data-share)"
    elif share > 0 and options.credit != "none":
        message = f"credit {options.credit} pays what the run has seen itself: leave data_share out"
        about = "data_share"
    elif share > 0 and round(share * getattr(algorithm, "batch_size", 0)) == 0:
        message, about = f"data_share {share:g} is not one row of a minibatch", "data_share"
    return UserError(message, about) if message else None


def problem_of_start(config: Config) -> UserError | None:
    """What is wrong with the policies that a run starts from, or None."""
    options, scheme = config.options, config.scheme
    about = "cloning_updates" if options.start_from is None else "start_from"
    message = ""
    if options.start_from is None and options.cloning_updates == 0:
        if not options.start_learners:
            return None
        message = "start_learners need start_from or cloning_updates"
        about = "start_learners"
    elif isinstance(scheme, EpisodeScheme):
        message = f"{about} is for learners, and scheme {scheme.name} evolves policies"
    elif config.algorithm.normalize_observations:
        message = f"{about} is for observations as they are: leave normalize_observations off"
    elif options.start_learners and max(options.start_learners) >= scheme.num_learners:
        last, about = scheme.num_learners - 1, "start_learners"
        message = f"start_learners are counted from 0 to {last}"
    return UserError(message, about) if message else None
