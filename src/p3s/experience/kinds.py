"""Which experience a run learns from."""

from __future__ import annotations

from collections.abc import Callable

from p3s.algorithms.off_policy import OffPolicy
from p3s.algorithms.on_policy import OnPolicy
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.envs.goals import Goals
from p3s.experience import Experience
from p3s.experience.bags import Bags
from p3s.experience.credit import Credit
from p3s.experience.data import Data
from p3s.experience.hindsight import Hindsight
from p3s.experience.normalization import Normalizer
from p3s.experience.replay import EVERYTHING, Replay
from p3s.experience.reward_network import LearnedCredit
from p3s.experience.reward_scale import RewardScale
from p3s.experience.rollouts import RolloutBuffer
from p3s.schemes.base import StepScheme
from p3s.types import EnvSpec


def make_experience(
    config: Config,
    spec: EnvSpec,
    normalizer: Normalizer,
    make: Callable[[], Adapter],
    own: slice = EVERYTHING,
    data: Data | None = None,
) -> Experience:
    """A replay, or for an on-policy algorithm the latest steps.

    own: the learners that use it. data: what minibatches hold besides (`data_share`).
    """
    algorithm, options = config.algorithm, config.options
    if isinstance(algorithm, OnPolicy):
        return RolloutBuffer(spec, algorithm.rollout_steps, normalizer)
    assert isinstance(algorithm, OffPolicy)
    scaled = algorithm.normalize_rewards
    return Replay(
        options.buffer_size,
        spec,
        algorithm.batch_size,
        options.seed,
        normalizer,
        algorithm.n_step,
        own,
        RewardScale(algorithm.discount_factor, algorithm.return_limit) if scaled else None,
        config.scheme.own_rows,
        make_bags(config, spec, make),
        data,
        options.data_share,
    )


def make_bags(config: Config, spec: EnvSpec, make: Callable[[], Adapter]) -> Bags | None:
    """Complete episodes, if rewards or goals are taken from them."""
    options, scheme = config.options, config.scheme
    if options.credit == options.hindsight == "none":
        return None
    exchange = 1 if options.shards is None else options.exchange_period
    # Rounds of whole episodes learn between them, and never ahead of a step.
    lag = exchange * scheme.num_envs if isinstance(scheme, StepScheme) else 0
    if options.hindsight != "none":
        share = options.hindsight_goals / (options.hindsight_goals + 1)
        about = spec, Goals(make()), options.hindsight, share
        return Hindsight(options.buffer_size, lag, *about)
    if options.credit == "ircr":
        return Credit(options.buffer_size, config.delay, lag)
    return LearnedCredit(options.buffer_size, config.delay, lag, spec, options.seed)
