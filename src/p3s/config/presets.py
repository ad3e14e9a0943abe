"""Hyper-parameters by name: the paper's text, the authors' code, and the recommended default.

`parallel` is the recommended one for hundreds of copies of an environment on a device: few updates
on large minibatches at every time step, as in FastTD3 and FlashSAC.

The authors' code (wyjung0625/p3s, commit 21ceb2f) differs from the text of the paper in several
places. Each is a field, so that the two presets are two sets of values of the same
fields, and any mixture can be tried. `recommended` is such a mixture.

What an algorithm or a scheme wants whatever the preset is in its own file (`fields/layers.py`).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from p3s.config.environments import preset_of
from p3s.fields.layers import Layer, Setting, all_updates, merged

if TYPE_CHECKING:
    from p3s.schemes import Scheme

AUTHORS = {
    "distance_reduction": "mean",
    "distance_estimate": "every_minibatch",
    "beta_limit": 1000.0,
    "learners_start": "independent",
    "distances_exclude": "new_best",
    "guide_from_start": False,
    "updates_per_step": all_updates,
}
AUTHORS_START = {"targets_start": "independent", "initialization": "xavier"}
"""Of their P3S code. Single TD3, CEM-RL, ERL and EvoRainbow have codes of their own."""

# Chosen by the first round of the study `selection`, on seeds 0 to 2; the second, on seeds 0 to 3,
# kept it (results/README.md).
RECOMMENDED: dict[str, Any] = {
    "distance_reduction": "mean",
    "distance_estimate": "policy_minibatches",
    "beta_limit": 1000.0,
    "learners_start": "independent",
    "guide_from_start": False,
    "skip_random_episodes": True,
    # β, its limits and d_min are in the unit of actions; in KL the pull drowns the base loss.
    "distance": "action",
    "updates_per_step": all_updates,
}


def copies_of_each(setting: Setting) -> int:
    """Environment copies of each learner."""
    return setting.num_envs // setting.num_learners


def takes_copies(scheme: type[Scheme]) -> bool:
    """Whether each learner of a scheme may have several environment copies."""
    return "envs_per_learner" in {field.name for field in fields(scheme)}


PARALLEL_COPIES = 128
# Chosen by the studies `parallel` and `parallel-second`, on seeds 0 to 3 (docs/device.md).
PARALLEL: dict[str, Any] = {
    "envs_per_learner": PARALLEL_COPIES,
    "updates_per_step": 8,
    "batch_size": 512,
    "review_period": 50,
    # All copies of a learner end their episodes together where the time limit does.
    "recent_episodes": copies_of_each,
    "skip_random_episodes": False,
    "initial_steps": 25,
    # At every stop the device waits for the host.
    "metrics_period": 25_000,
    "evaluation_period": 100_000,
    "checkpoint_period": 250_000,
}

DEFAULT_PRESET = "recommended"
PRESETS: dict[str, tuple[Layer, ...]] = {
    "paper": (),
    "authors": (
        Layer("", AUTHORS),
        Layer("", {"random_steps": "next_thousand"}, yields=True),
        Layer("", AUTHORS_START, lambda setting: not setting.scheme.has_own_code, yields=True),
    ),
    "recommended": (Layer("", RECOMMENDED),),
    "parallel": (
        Layer("", RECOMMENDED),
        Layer("", PARALLEL, lambda setting: takes_copies(setting.scheme)),
    ),
}
"""The defaults of the fields are the paper's text."""
SUITS_ENVIRONMENTS = DEFAULT_PRESET, "parallel"
"""The presets that go with the values of an environment (`environments.py`)."""


def copies_by_default(scheme: type[Scheme], preset: str) -> int:
    """Environment copies of each learner; other values depend on them."""
    if preset == "parallel" and takes_copies(scheme):
        return PARALLEL_COPIES
    return scheme.envs_per_learner


def distance_of(algorithm: type, preset: str) -> str | None:
    """How far apart policies are by default, kl or action; None where there is no choice."""
    said = RECOMMENDED["distance"] if preset in SUITS_ENVIRONMENTS else None
    return said or getattr(algorithm, "distance", None)


def default_values(setting: Setting) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that a run gets where its user gives none, and who says so."""
    return merged(
        setting,
        (
            (f"algorithm {setting.algorithm.name}", setting.algorithm.presets),
            (f"scheme {setting.scheme.name}", setting.scheme.presets),
            (f"preset {setting.preset}", PRESETS[setting.preset]),
            (f"environment {setting.family}", (of_environment(setting),)),
        ),
    )


def of_environment(setting: Setting) -> Layer:
    """The layer of what is known of the environment; tuned values are for its own algorithm."""
    known = preset_of(setting.env)
    if known is None or setting.preset not in SUITS_ENVIRONMENTS:
        return Layer("", {})
    values = known.values(setting.algorithm.name, setting.algorithm.on_policy)
    if setting.preset != DEFAULT_PRESET:
        del values["steps"]  # of one copy of each learner
    return Layer(known.source, values, yields=setting.algorithm.name != known.algorithm)
