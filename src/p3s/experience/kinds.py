"""Which experience a run learns from."""

from __future__ import annotations

from p3s.algorithms.off_policy import OffPolicy
from p3s.algorithms.on_policy import OnPolicy
from p3s.config import Config
from p3s.experience import Experience
from p3s.experience.normalization import Unnormalized
from p3s.experience.replay import EVERYTHING, Replay
from p3s.experience.reward_scale import RewardScale
from p3s.experience.rollouts import LatestSteps
from p3s.types import EnvSpec


def make_experience(config: Config, spec: EnvSpec, normalizer: Unnormalized) -> Experience:
    """A replay, or for an on-policy algorithm the latest steps."""
    algorithm = config.algorithm
    if isinstance(algorithm, OnPolicy):
        return LatestSteps(spec, algorithm.rollout_steps, normalizer)
    return make_replay(config, spec, normalizer)


def make_replay(
    config: Config, spec: EnvSpec, normalizer: Unnormalized, own: slice = EVERYTHING
) -> Replay:
    """The replay of an off-policy algorithm; own: the learners that learn from it here."""
    algorithm, options = config.algorithm, config.options
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
    )
