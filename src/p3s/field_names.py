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
    "ent_coef": ("entropy_weight", "temperature"),
    "target_policy_noise": ("target_noise",),
    "eval_freq": ("evaluation_period",),
    "n_eval_episodes": ("evaluation_episodes",),
    "device": ("devices",),
}
"""What other libraries call our fields."""


def new_name(key: str, known: set[str]) -> str:
    """What a field of p3s 0.1 is called now."""
    if key == "num_learners" and "num_copies" in known:
        return "num_copies"
    return RENAMED.get(key, key) if key not in known else key
