"""Hyper-parameters by name: the paper's text, the authors' code, and the recommended default.

The authors' code (wyjung0625/p3s, commit 21ceb2f) differs from the text of the paper in several
places. Each is a field, so that the two presets are two sets of values of the same
fields, and any mixture can be tried. `recommended` is such a mixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.environment_presets import preset_of
from p3s.envs import EnvName

if TYPE_CHECKING:
    from p3s.algorithms import Algorithm

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "updates_per_step": 1,
        "distance_reduction": "sum",
        "distance_estimate": "period_end",
        "beta_limit": 1e9,
        "learners_start": "identical",
        "targets_start": "online",
        "distances_exclude": "period_best",
        "random_steps": "initial_steps",
        "guide_from_start": True,
        "initialization": "fan_in",
        # CEM-TD3: Appendix D's description, and the CEM-RL code that it was run with.
        "selection": "random",
        "sampling": "independent",
        "elite_weights": "equal",
        "variance_estimate": "plain",
        "update_order": "together",
        "damping": 0.0,
        "final_damping": 0.0,
    },
    "authors": {
        "updates_per_step": "N",
        "distance_reduction": "mean",
        "distance_estimate": "every_minibatch",
        "beta_limit": 1000.0,
        "learners_start": "independent",
        "targets_start": "independent",
        "distances_exclude": "new_best",
        "random_steps": "next_thousand",
        "guide_from_start": False,
        "initialization": "xavier",
        "selection": "first",
        "sampling": "mirrored",
        "elite_weights": "log",
        "variance_estimate": "cem_rl",
        "update_order": "values_first",
        "damping": 1e-3,
        "final_damping": 1e-5,
    },
}

# Chosen by the first round of the study `selection`, on seeds 0 to 2; the second, on seeds 0 to 3,
# kept it (results/README.md).
PRESETS["recommended"] = {
    **PRESETS["authors"],
    "targets_start": "online",
    "initialization": "fan_in",
    "distances_exclude": "period_best",
    "skip_random_episodes": True,
    "distance_estimate": "policy_minibatches",
    # Environment steps of the whole population, as many as a single learner takes.
    "random_steps": "initial_steps",
    # β, its limits and d_min are in the unit of actions; in KL the pull drowns the base loss.
    "distance": "action",
}
DEFAULT_PRESET = "recommended"

SCHEMES_WITH_OWN_CODE = ("single", "cem", "erl", "evorainbow")
OWN_CODE = {"initialization": "fan_in", "targets_start": "online"}
"""Single TD3, CEM-RL, ERL and EvoRainbow have their own codes, which start like this; Xavier and
independent targets belong to the authors' P3S code."""

CEM_RL_NETWORKS = {"activation": "leaky_relu", "policy_activation": "tanh"}
ERL_DDPG = {
    "hidden_sizes": (400, 300),
    "activation": "elu",
    "layer_norm": True,
    "learning_rate": 5e-4,
    "policy_hidden_sizes": (128, 128),
    "policy_activation": "tanh",
    "policy_learning_rate": 5e-5,
    "batch_size": 128,
    "target_rate": 0.001,
    "exploration_noise": 0.2,
    "exploration_noise_kind": "ornstein_uhlenbeck",
    "exploration_noise_reversion": 0.15,
}
ORIGINAL_ALGORITHMS: dict[tuple[str, str], dict[str, Any]] = {
    ("cem", "td3"): CEM_RL_NETWORKS,
    ("cem", "ddpg"): CEM_RL_NETWORKS,
    ("erl", "ddpg"): ERL_DDPG,
}
"""Fields of the base algorithm in CEM-RL's and ERL's own codes, in `authors`; by scheme and
algorithm."""

# Appendix I, keyed by (environment, delayed).
D_MIN = {
    ("Hopper", False): 0.05,
    ("Walker2d", False): 0.02,
    ("HalfCheetah", False): 0.05,
    ("Ant", False): 0.02,
    ("Hopper", True): 0.02,
    ("Walker2d", True): 0.02,
    ("HalfCheetah", True): 0.02,
    ("Ant", True): 0.05,
}
OTHER_D_MIN = 0.05
# Normals with TD3's exploration noise as their std, 0.1, whose means are ½‖.‖² = d apart, have a KL
# of d / 0.1²; SAC's target entropy means a std of 0.09 (docs/algorithms/sac.md).
KL_PER_SQUARE = 100.0

# T_initial of Appendix I times its four learners, which is also what TD3 takes alone.
INITIAL_TOTAL_STEPS = {"Hopper": 1000, "Walker2d": 1000, "HalfCheetah": 10_000, "Ant": 10_000}
OTHER_INITIAL_TOTAL_STEPS = 1000

# M' of Re-TD3, Appendix I.
RESET_PERIOD = {
    ("Ant", False): 2000,
    ("Hopper", False): 5000,
    ("Walker2d", False): 5000,
    ("HalfCheetah", False): 5000,
    ("HalfCheetah", True): 10_000,
    ("Ant", True): 10_000,
    ("Hopper", True): 20_000,
    ("Walker2d", True): 20_000,
}
OTHER_RESET_PERIOD = 5000

# EvoRainbow's distribution is that of CEM-RL's code, under any preset; no mirror images, as in its
# own code for an odd population.
EVORAINBOW = {
    "sampling": "independent",
    "elite_weights": "log",
    "variance_estimate": "cem_rl",
    "damping": 1e-3,
    "final_damping": 1e-5,
}
# Where EvoRainbow-Exp's run script has other values.
EVORAINBOW_BY_FAMILY: dict[str, dict[str, Any]] = {
    "Humanoid": {"damping": 0.1, "champion_rate": 0.0},
}

# CEM-RL's warm-up, on every environment.
CEM_INITIAL_TOTAL_STEPS = 10_000

# ERL: episodes by which a policy is judged, elite fraction, rounds between synchronizations.
ERL_FIELDS = {
    "Swimmer": (1, 0.1, 10),
    "Hopper": (5, 0.3, 1),
    "Ant": (1, 0.3, 1),
    "Walker2d": (3, 0.2, 10),
    "HalfCheetah": (1, 0.1, 10),
}
_ERL_NAMES = ("episodes_per_round", "elite_fraction", "synchronization_period")

# The original codes of SAC (8258e33) and SQL (6f51eac) learn from this many samples on. SAC's acts
# randomly for as long as TD3's; SQL's has no random phase.
HAARNOJA_INITIAL_TOTAL_STEPS = 1000
# What they multiply rewards by, where it is not the field's default.
REWARD_SCALE = {
    ("sac_2018", "Swimmer"): 25.0,
    ("sql", "Walker2d"): 10.0,
    ("sql", "Ant"): 300.0,
}

# REDQ's and DroQ's codes: updates per environment step, random steps, and target entropies per
# action dimension (in total: Hopper -1, HalfCheetah and Walker2d -3, Ant -4, Humanoid -2).
REDQ_FORMS = ("redq", "droq")
REDQ_INITIAL_TOTAL_STEPS = 5000
REDQ_TARGET_ENTROPY = {
    "Hopper": -1 / 3,
    "HalfCheetah": -0.5,
    "Walker2d": -0.5,
    "Ant": -0.5,
    "Humanoid": -2 / 17,
}

# The largest quantiles that TQC's authors leave out, where it is not the field's default.
TQC_NUM_DROPPED = {"Hopper": 5, "HalfCheetah": 0}

# CrossQ's and XQC's codes.
CROSSQ_INITIAL_TOTAL_STEPS = 5000
CROSSQ_SWIMMER_DISCOUNT = 0.9999
# XQC's discount factor looks a fifth of an episode ahead, within bounds.
XQC_HORIZON = 1 / 5
XQC_DISCOUNTS = (0.95, 0.995)

# FlashSAC's code.
FLASHSAC_INITIAL_TOTAL_STEPS = 10_000

# Updates per environment step in the codes of those who make several.
MANY_UPDATES = {"redq": 20, "droq": 20, "xqc": 2}

# Several learners on one replay can lose what they had after hard copies (docs/algorithms/dqn.md).
DQN_SOFT_TARGETS = {"target_rate": 0.005, "target_period": 1}


def preset_fields(
    preset: str,
    scheme: str,
    env: EnvName | None,
    num_envs: int,
    algorithm: type[Algorithm],
    distance: str | None = None,
) -> dict[str, Any]:
    """The values that a preset gives to fields, for this environment (None: one of the user's).

    distance: the user's choice between KL and distance of actions, in whose unit d_min is.
    """
    from p3s.schemes.pbt import PBT

    family, delayed = (env.family, env.is_delayed) if env is not None else ("", False)
    total = INITIAL_TOTAL_STEPS.get(family, OTHER_INITIAL_TOTAL_STEPS)
    perturbed = {"perturbed": tuple(name for name in PBT.perturbed if hasattr(algorithm, name))}
    by_scheme: dict[str, dict[str, Any]] = {
        "resetting": {"review_period": RESET_PERIOD.get((family, delayed), OTHER_RESET_PERIOD)},
        "distributed": {"updates_per_step": "N"},
        "cem": {"initial_steps": _own_steps(CEM_INITIAL_TOTAL_STEPS, num_envs)},
        "erl": {
            "initial_steps": 0,
            **dict(zip(_ERL_NAMES, ERL_FIELDS.get(family, ERL_FIELDS["Swimmer"]), strict=True)),
        },
        "pbt": perturbed,
        "pb2": perturbed,
        "dvd": {"learners_start": "independent"},
        "evorainbow": {**EVORAINBOW, **EVORAINBOW_BY_FAMILY.get(family, {})},
    }
    own_code = OWN_CODE if scheme in SCHEMES_WITH_OWN_CODE else {}
    original = ORIGINAL_ALGORITHMS.get((scheme, algorithm.name), {}) if preset == "authors" else {}
    known = preset_of(env) if preset == DEFAULT_PRESET else None
    own = {} if known is None else known.values(algorithm.name, algorithm.on_policy)
    own_distance = PRESETS[preset].get("distance", getattr(algorithm, "distance", None))
    unit = KL_PER_SQUARE if (distance or own_distance) == "kl" else 1.0
    fields = {
        **PRESETS[preset],
        **own_code,
        **original,
        "d_min": unit * D_MIN.get((family, delayed), OTHER_D_MIN),
        "initial_steps": _own_steps(total, num_envs),
        **own,
        **_algorithm_fields(algorithm.name, scheme, env, num_envs),
        **by_scheme.get(scheme, {}),
    }
    if algorithm.name in MANY_UPDATES:
        each = fields["updates_per_step"]
        own = num_envs if each == "N" else each
        fields["updates_per_step"] = MANY_UPDATES[algorithm.name] * own
    return fields


def _algorithm_fields(
    algorithm: str, scheme: str, env: EnvName | None, num_envs: int
) -> dict[str, Any]:
    """What an algorithm wants under any preset."""
    family = "" if env is None else env.family
    if algorithm == "dqn":
        return DQN_SOFT_TARGETS if num_envs > 1 and scheme != "distributed" else {}
    if algorithm in REDQ_FORMS:
        entropy = REDQ_TARGET_ENTROPY.get(family)
        return {
            "initial_steps": _own_steps(REDQ_INITIAL_TOTAL_STEPS, num_envs),
            "initialization": "xavier_joint",
            **({} if entropy is None else {"target_entropy": entropy}),
        }
    if algorithm in ("crossq", "crossq_td3"):
        swimmer = {"discount_factor": CROSSQ_SWIMMER_DISCOUNT} if family == "Swimmer" else {}
        return {"initial_steps": _own_steps(CROSSQ_INITIAL_TOTAL_STEPS, num_envs), **swimmer}
    if algorithm == "xqc":
        length = None if env is None else env.episode_length
        discount = {} if length is None else {"discount_factor": xqc_discount(length)}
        return {"initial_steps": _own_steps(CROSSQ_INITIAL_TOTAL_STEPS, num_envs), **discount}
    if algorithm == "flashsac":
        initial_steps = _own_steps(FLASHSAC_INITIAL_TOTAL_STEPS, num_envs)
        return {"initial_steps": initial_steps, "initialization": "orthogonal"}
    if algorithm == "tqc":
        return {"num_dropped": TQC_NUM_DROPPED[family]} if family in TQC_NUM_DROPPED else {}
    if algorithm not in ("sac_2018", "sql"):
        return {}
    total = INITIAL_TOTAL_STEPS.get(family, OTHER_INITIAL_TOTAL_STEPS)
    scale = REWARD_SCALE.get((algorithm, family))
    return {
        "initial_steps": _own_steps(HAARNOJA_INITIAL_TOTAL_STEPS, num_envs),
        "random_steps": _own_steps(total, num_envs) if algorithm == "sac_2018" else 0,
        "initialization": "xavier",
        **({} if scale is None else {"reward_scale": scale}),
    }


def xqc_discount(episode_length: int) -> float:
    """1 - 1/h, with h a fifth of an episode; rounded, to be readable in records."""
    lowest, highest = XQC_DISCOUNTS
    return round(min(max(1 - 1 / (XQC_HORIZON * episode_length), lowest), highest), 6)


def _own_steps(total_steps: int, num_envs: int) -> int:
    """Steps of each copy that make up at least this many in total."""
    return -(-total_steps // num_envs)
