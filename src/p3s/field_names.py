"""Other names of fields: those of p3s 0.1, and those that other libraries use."""

from __future__ import annotations

RENAMED = {
    "discount": "discount_factor",
    "left_out": "distances_exclude",
    "normalise_observations": "normalize_observations",
    "normalise_rewards": "normalize_rewards",
    "random_until": "random_steps",
}
"""Fields that had another name in p3s 0.1."""
FAMILIAR: dict[str, tuple[str, ...]] = {
    "gamma": ("discount_factor",),
    "lr": ("learning_rate",),
    "tau": ("target_rate",),
    "polyak": ("target_rate",),
    "total_timesteps": ("steps",),
    "learning_starts": ("initial_steps",),
    "gradient_steps": ("updates_per_step",),
    "policy_delay": ("policy_period",),
    "net_arch": ("hidden_sizes",),
    "policy_kwargs": ("hidden_sizes",),
    "activation_fn": ("activation",),
    "n_envs": ("num_learners", "num_copies"),
    "num_envs": ("num_learners", "num_copies"),
    "population_size": ("num_learners",),
    "n_steps": ("rollout_steps", "n_step"),
    "n_epochs": ("num_epochs", "epochs"),
    "gae_lambda": ("trace_decay",),
    "ent_coef": ("entropy_weight", "temperature", "initial_temperature"),
    "train_freq": ("updates_per_step",),
    "n_timesteps": ("steps",),
    "target_policy_noise": ("target_noise",),
    "eval_freq": ("evaluation_period",),
    "n_eval_episodes": ("evaluation_episodes",),
}
"""What other libraries call our fields."""
ELSEWHERE = {
    "device": "jax chooses the device: set JAX_PLATFORMS to cpu or cuda (devices is a number)",
    "verbose": "progress is always shown; in Python, learn(progress_bar=False) hides it",
    "tensorboard_log": "a run is logged with p3s train --log tensorboard",
    "track": "a run is logged with --log wandb",
    "policy": "there is no policy class: choose hidden_sizes, activation or network",
    "wrappers": "in Python, wrap the environment in the callable that makes it",
}
"""What other libraries have as an argument and p3s has elsewhere."""


def new_name(key: str, known: set[str]) -> str:
    """What a field of p3s 0.1 is called now."""
    if key == "num_learners" and "num_copies" in known:
        return "num_copies"
    return RENAMED.get(key, key) if key not in known else key
