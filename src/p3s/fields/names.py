"""Other names of fields: those of older versions, and those that other libraries use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from p3s.errors import UserError

RENAMED = {
    "discount": "discount_factor",
    "left_out": "distances_exclude",
    "log_period": "metrics_period",
    "normalise_observations": "normalize_observations",
    "normalise_rewards": "normalize_rewards",
    "num_copies": "envs_per_learner",
    "num_values": "num_critics",
    "random_until": "random_steps",
    "record_video": "video_period",
}
"""Fields that had another name in p3s 0.1 or in early p3s 0.2."""
RENAMED_WORDS = {"log": "loggers"}
"""What else of a run had another name: flags, and keys of run files and of config.json."""
FAMILIAR: dict[str, tuple[str, ...]] = {
    "gamma": ("discount_factor",),
    "lr": ("learning_rate",),
    "tau": ("target_rate",),
    "polyak": ("target_rate",),
    "total_timesteps": ("steps",),
    "learning_starts": ("initial_steps",),
    "policy_delay": ("policy_period",),
    "net_arch": ("hidden_sizes",),
    "policy_kwargs": ("hidden_sizes",),
    "activation_fn": ("activation",),
    "n_envs": ("envs_per_learner",),
    "num_envs": ("envs_per_learner",),
    "population_size": ("num_learners",),
    "n_steps": ("rollout_steps", "n_step"),
    "n_epochs": ("num_epochs", "epochs"),
    "gae_lambda": ("trace_decay",),
    "ent_coef": ("entropy_weight", "temperature", "initial_temperature"),
    "n_timesteps": ("steps",),
    "target_policy_noise": ("target_noise",),
    "eval_freq": ("evaluation_period",),
    "n_eval_episodes": ("evaluation_episodes",),
    "her": ("hindsight",),
    "goal_selection_strategy": ("hindsight",),
    "n_sampled_goal": ("hindsight_goals",),
}
"""What other libraries call our fields."""
ELSEWHERE = {
    "device": "jax chooses the device: set JAX_PLATFORMS to cpu or cuda (devices is a number)",
    "verbose": "progress is always shown; in Python, learn(progress_bar=False) hides it",
    "tensorboard_log": "a run is logged with --loggers tensorboard; in Python, "
    "Population(..., out='runs/name', loggers=['tensorboard'])",
    "track": "a run is logged with --loggers wandb",
    "replay_buffer_class": 'hindsight replay is hindsight="future" (--hindsight future)',
    "policy": "there is no policy class: choose hidden_sizes, activation or network",
}
"""What other libraries have as an argument and p3s has elsewhere."""
IN_LEARN = {
    "log_interval": "a row of metrics is written every metrics_period environment steps, "
    "Population(..., metrics_period=1000)",
    "tb_log_name": "a run is called what its folder is, "
    "Population(..., out='runs/name', loggers=['tensorboard'])",
    "eval_env": "evaluations have copies of their own; callback=EvaluateOn(env, every=...) plays "
    "on another environment",
    "eval_freq": "it is the population's evaluation_period",
    "n_eval_episodes": "it is the population's evaluation_episodes",
}
"""What other libraries tell `learn`, and p3s elsewhere."""


UPDATES = ("train_freq", "gradient_steps")
"""What other libraries say in place of our updates_per_step: steps between, and updates after."""


def updates_per_step(given: Mapping[str, Any]) -> str:
    """Our updates_per_step for values of `UPDATES`, of which one may be missing."""
    try:
        period, updates = (int(given.get(name, 1)) for name in UPDATES)
    except (TypeError, ValueError):  # (1, "episode")
        return "a number of updates per own step"
    if period < 1:
        return "a number of updates per own step"
    if updates < 1:  # as many as there were environment steps
        return "N"
    ratio = updates / period
    return f"{round(ratio) if ratio > 1 else ratio:.6g}"


def new_name(key: str, known: set[str]) -> str:
    """What a field of an older version is called now."""
    if key == "num_learners" and key not in known and "envs_per_learner" in known:
        return "envs_per_learner"  # of `distributed`
    return RENAMED.get(key, key) if key not in known else key


def refuse_words_of_others(names: Iterable[str]) -> None:
    """Answer an argument of another library's `learn` with what it is here."""
    for name in names:
        if name in IN_LEARN:
            raise UserError(f"learn takes no {name}: {IN_LEARN[name]}", name)
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}")
